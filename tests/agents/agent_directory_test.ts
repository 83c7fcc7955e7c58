import { deepEqual, equal, match, rejects } from "node:assert/strict";
import { openAgentDirectory } from "../../server/agents/agent_directory.ts";
import type { AgentAction, AgentOutcome } from "../../server/core/repository_agent.ts";

/** An agent in a folder of its own, and a model for it. */
class Fixture implements AsyncDisposable {
  readonly root: string;
  readonly lines: string[] = [];
  readonly #name: string;

  private constructor(root: string, name: string) {
    this.root = root;
    this.#name = name;
  }

  static async create(code: string, manifest?: unknown, prefix = "nereid "): Promise<Fixture> {
    const root = await Deno.realPath(await Deno.makeTempDir({ prefix }));
    await Deno.mkdir(`${root}/agents/mine`, { recursive: true });
    await Deno.mkdir(`${root}/model`);
    await Deno.writeTextFile(`${root}/model/secret`, "olleh");
    await Deno.writeTextFile(`${root}/outside`, "outside");
    await Deno.writeTextFile(`${root}/agents/mine/agent.ts`, code);
    if (manifest !== undefined) {
      const text = typeof manifest === "string" ? manifest : JSON.stringify(manifest);
      await Deno.writeTextFile(`${root}/agents/mine/agent.json`, text);
    }
    return new Fixture(root, "mine");
  }

  async open() {
    const note = (message: string) => void this.lines.push(message);
    const log = { info: note, warning: note, error: note, verbose: () => {} };
    return await openAgentDirectory(`${this.root}/agents`, log).open(this.#name);
  }

  /** Calls the agent; at LOAD with a folder for the new model. */
  async call(...actions: readonly AgentAction[]): Promise<AgentOutcome> {
    const agent = await this.open();
    const createDirectory = async () => {
      await Deno.mkdir(`${this.root}/new`);
      return `${this.root}/new`;
    };
    let outcome: AgentOutcome = { faults: [] };
    for (const action of actions) {
      const directory = `${this.root}/model`;
      const parameters = { key: "value", root: this.root };
      outcome = await agent!.call({
        action,
        model: "m",
        parameters,
        directory,
        root: directory,
        createDirectory,
      });
    }
    return outcome;
  }

  async fault(): Promise<string> {
    const { faults, directory } = await this.call("LOAD");
    equal(directory, undefined);
    equal(faults.length, 1);
    return faults[0]!.message;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.root, { recursive: true });
  }
}

Deno.test("an agent rewrites a model into the new folder", async () => {
  await using fixture = await Fixture.create(`
    export async function load({ name, parameters, directory, newDirectory }) {
      console.log("loading", name, parameters.key);
      const text = await Deno.readTextFile(directory + "/secret");
      await Deno.writeTextFile(newDirectory + "/plain", [...text].reverse().join(""));
      return "rewritten";
    }`);
  deepEqual(await fixture.call("LOAD"), { faults: [], directory: `${fixture.root}/new` });
  equal(await Deno.readTextFile(`${fixture.root}/new/plain`), "hello");
  deepEqual(fixture.lines, ["repo agent 'mine' for model 'm': loading m value"]);
});

Deno.test("an agent hears of what it exports a function for, and of nothing else", async () => {
  await using fixture = await Fixture.create(`
    export const load = () => console.log("load");
    export const unload = ({ newDirectory }) => console.log("unload", newDirectory === "");`);
  await fixture.call("LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE");
  deepEqual(fixture.lines.map((line) => line.slice(line.indexOf(": ") + 2)), [
    "load",
    "unload true",
  ]);
});

for (const prefix of ["plain ", "with, commas, "]) {
  Deno.test(`an agent may do nothing but read the model and write the new folder, ${prefix}`, async () => {
    await using fixture = await Fixture.create(
      `
    const tries = {
      outside: ({ parameters }) => Deno.readTextFile(parameters.root + "/outside"),
      write: ({ directory }) => Deno.writeTextFile(directory + "/secret", ""),
      env: () => Deno.env.get("HOME"),
      net: () => fetch("http://127.0.0.1:22199/"),
      run: () => new Deno.Command("/bin/true").output(),
      link: ({ newDirectory }) => Deno.symlink("/etc", newDirectory + "/etc"),
      ask: async () => {
        const { state } = await Deno.permissions.request({ name: "env" });
        if (state !== "granted") throw new Deno.errors.NotCapable("denied");
      },
      worker: () => new Worker("data:text/javascript,1", { type: "module", deno: { permissions: "inherit", env: true } }) && Deno.env.get("HOME"),
    };
    export async function load(model) {
      const allowed = [];
      for (const [name, attempt] of Object.entries(tries)) {
        try { await attempt(model); allowed.push(name); } catch (reason) {
          if (!(reason instanceof Deno.errors.NotCapable)) allowed.push(name + ": " + reason);
        }
      }
      throw new Error("allowed: " + allowed.join());
    }`,
      undefined,
      prefix,
    );
    equal(await fixture.fault(), "repo agent 'mine': allowed: ");
    equal(await Deno.readTextFile(`${fixture.root}/model/secret`), "olleh");
  });
}

Deno.test("an agent may do what its agent.json says", async () => {
  const code = `
    export async function load({ parameters }) {
      throw new Error(await Deno.readTextFile(parameters.root + "/outside") + Deno.env.get("HOME"));
    }`;
  await using fixture = await Fixture.create(code, {});
  await Deno.writeTextFile(
    `${fixture.root}/agents/mine/agent.json`,
    JSON.stringify({ permissions: { read: [`${fixture.root}/outside`], env: ["HOME"] } }),
  );
  equal(await fixture.fault(), `repo agent 'mine': outside${Deno.env.get("HOME")}`);
});

const FAULTY: Readonly<
  Record<string, readonly [code: string, message: RegExp, manifest?: object]>
> = {
  "throws": [`export const load = () => { throw new Error("no good"); }`, /: no good$/],
  "throws no error": [`export const load = () => Promise.reject(7)`, /: 7$/],
  "throws later": [
    `export const load = () => { setTimeout(() => { throw new Error("late"); }, 1); return new Promise(() => {}); }`,
    /late/,
  ],
  "exits": [`export const load = () => Deno.exit(0)`, /ended its Worker/],
  "closes": [`export const load = () => { self.close(); }`, /ended its Worker/],
  "exits while it is read": [`Deno.exit(1)`, /ended its Worker/],
  "has a wrong syntax": [`export const load = (;`, /agent\.ts/],
  "exports nothing": [`export const lood = 1`, /it exports no function 'load'/],
  "returns something else": [`export const load = () => "yes"`, /must return "rewritten"/],
  "loops": [
    `export const load = () => { for (;;); }`,
    /took longer than 1 s/,
    { timeout_seconds: 1 },
  ],
  "waits": [
    `export const load = () => new Promise((resolve) => setTimeout(resolve, 1e6))`,
    /took longer than 1 s/,
    { timeout_seconds: 1 },
  ],
  "takes all memory": [
    `export const load = () => { const all = []; for (;;) all.push({ all: [...all] }); }`,
    /ended without an answer/,
    { memory_mib: 64 },
  ],
  "takes all memory outside of the heap": [
    `const wait = () => new Promise((go) => setTimeout(go, 5));
     export const load = async () => {
       for (const all = [];;) { all.push(new Uint8Array(1 << 24).fill(1)); await wait(); }
     }`,
    /took more than 320 MiB of memory/,
    { memory_mib: 64 },
  ],
  "prints without end": [
    `export const load = () => { for (;;) console.log("x".repeat(10000)); }`,
    /printed more than 1048576 bytes/,
  ],
  "throws a long text": [
    `export const load = () => { throw new Error("x".repeat(1e6)); }`,
    /^repo agent 'mine': x{4096}$/,
  ],
  "imports from elsewhere": [
    `import "https://127.0.0.1:1/x.ts"; export const load = () => {}`,
    /127\.0\.0\.1/,
  ],
};

for (const [what, [code, message, manifest]] of Object.entries(FAULTY)) {
  Deno.test(`an agent that ${what} refuses the model, and nothing else happens`, async () => {
    await using fixture = await Fixture.create(code, manifest);
    match(await fixture.fault(), message);
  });
}

Deno.test("an agent with a wrong agent.json is not run", async () => {
  for (
    const [manifest, message] of [
      ["{", /agent\.json: is no JSON/],
      ["[]", /must hold an object/],
      [{ permission: {} }, /'permission' is unknown/],
      [{ permissions: { ffi: ["x"] } }, /'permissions.ffi' is unknown/],
      [{ permissions: { read: true } }, /'permissions.read' must be a list/],
      [{ permissions: [] }, /must be an object/],
      [{ timeout_seconds: 0 }, /'timeout_seconds' must be a whole number from 1 to 3600/],
      [{ memory_mib: "much" }, /'memory_mib' must be/],
    ] as const
  ) {
    await using fixture = await Fixture.create("export const load = () => {}", manifest);
    await rejects(fixture.open(), { code: "INVALID_ARG", message });
  }
});

Deno.test("a folder without an agent.ts is no agent", async () => {
  await using fixture = await Fixture.create("");
  await Deno.remove(`${fixture.root}/agents/mine/agent.ts`);
  equal(await fixture.open(), undefined);
});
