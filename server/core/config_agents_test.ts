import { deepEqual, equal, match } from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { runRepositoryAgents } from "./config_agents.ts";
import type { AgentCall, AgentOutcome, RepositoryAgents } from "./repository_agent.ts";
import { TemporaryFolders } from "./temporary_folders.ts";

type Load = (call: AgentCall) => Promise<AgentOutcome>;

/** Runs the agents of these names over `/repository/m`; `created` counts the folders made, `left` those still there. */
async function run(names: readonly string[], loads: Readonly<Record<string, Load>>) {
  await using folders = new TemporaryFolderCount();
  const calls: string[] = [];
  const agents: RepositoryAgents = {
    describePlace: (name) => `/agents/${name}`,
    open: (name) => {
      const load = loads[name];
      return Promise.resolve(
        load && {
          call: (call) => {
            calls.push(`${name} ${call.directory}`);
            return load(call);
          },
        },
      );
    },
  };
  const config = create(ModelConfigSchema, {
    modelRepositoryAgents: { agents: names.map((name) => ({ name, parameters: {} })) },
  });
  const source = { model: "m", directory: "/repository/m", root: "/repository" };
  const result = await runRepositoryAgents(config, source, { temporaryFolders: folders, agents });
  return { result, calls, left: folders.left, made: folders.paths };
}

class TemporaryFolderCount extends TemporaryFolders implements AsyncDisposable {
  readonly paths: string[] = [];
  readonly removed = new Set<string>();

  override async create() {
    const folder = await super.create();
    this.paths.push(folder.path);
    const remove = () => {
      this.removed.add(folder.path);
      return folder.remove();
    };
    return { path: folder.path, remove };
  }

  get left(): string[] {
    return this.paths.filter((path) => !this.removed.has(path));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const rewrite: Load = async ({ createDirectory }) => ({
  faults: [],
  directory: await createDirectory(),
});
const ignore: Load = async ({ createDirectory }) => {
  await createDirectory();
  return { faults: [] };
};
const refuse: Load = () => Promise.resolve({ faults: [{ message: "no licence" }] });

Deno.test("runRepositoryAgents() gives each agent the folder that the one before it made", async () => {
  const { result, calls, made, left } = await run(["a", "b", "c", "d"], {
    a: rewrite,
    b: ignore,
    c: rewrite,
    d: ignore,
  });
  const [first, , second] = made;
  deepEqual(calls, ["a /repository/m", `b ${first}`, `c ${first}`, `d ${second}`]);
  deepEqual([result.directory, result.root], [second, second]);
  deepEqual(left, [first, second], "what was not used is gone");
  deepEqual(result.folders.map(({ path }) => path), left);
  deepEqual(result.issues, []);
  equal(result.runs.length, 4);
});

Deno.test("runRepositoryAgents() ends with the first agent that refuses", async () => {
  const { result, calls } = await run(["a", "b", "c"], { a: rewrite, b: refuse, c: rewrite });
  equal(calls.length, 2);
  deepEqual(result.issues, [{
    path: "model_repository_agents.agents[1].name",
    message: "no licence",
  }]);
  equal(result.isUnfinished, true);
  equal(result.runs.length, 2, "both hear that the model was not loaded");
});

Deno.test("runRepositoryAgents() counts an agent that fails as one that refuses", async () => {
  const fail = () => Promise.reject(new ServerError("UNAVAILABLE", "it is gone"));
  const { result, left } = await run(["a"], { a: fail });
  match(result.issues[0]!.message, /it is gone/);
  deepEqual(left, []);
});

Deno.test("runRepositoryAgents() runs none when one is not there, and tells all of those", async () => {
  const { result, calls } = await run(["a", "b", "..", "c/d", ""], { a: rewrite });
  deepEqual(calls, []);
  deepEqual(
    result.issues.map(({ path }) => path),
    [1, 2, 3, 4].map((index) => `model_repository_agents.agents[${index}].name`),
  );
  match(
    result.issues[0]!.message,
    /unable to find 'libtritonrepoagent_b.so' for repo agent 'b', searched: '\/agents\/b'/,
  );
  match(result.issues[1]!.message, /invalid name '\.\.'/);
});
