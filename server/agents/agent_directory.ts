import { pathToFileURL } from "node:url";
import { ServerError } from "../../proto/status.ts";
import { LoadSlots } from "../core/load_slots.ts";
import type { Log } from "../core/log.ts";
import type {
  AgentAction,
  AgentCall,
  AgentOutcome,
  RepositoryAgent,
  RepositoryAgents,
} from "../core/repository_agent.ts";
import { type AgentManifest, parseManifest, PERMISSION_NAMES } from "./agent_manifest.ts";
import type { WorkerPermissions } from "./agent_message.ts";
import { runAgentProcess } from "./agent_process.ts";

const CODE_FILE = "agent.ts";
const MANIFEST_FILE = "agent.json";
const MANIFEST_BYTES_MAX = 64 * 1024;
const LINES_MAX = 100;
const LINE_MAX = 500;
/** Processes of agents at the same time. */
const PROCESSES_MAX = 4;

/** Name of the function of an `agent.ts` for each action. */
const FUNCTION_NAMES: Readonly<Record<AgentAction, string>> = {
  LOAD: "load",
  LOAD_COMPLETE: "loadComplete",
  LOAD_FAIL: "loadFail",
  UNLOAD: "unload",
  UNLOAD_COMPLETE: "unloadComplete",
};

/** The agents of `--repoagent-directory`: `<path>/<name>/agent.ts`, with an `agent.json` that says what it may do. */
export function openAgentDirectory(path: string, log: Log): RepositoryAgents {
  const slots = new LoadSlots(PROCESSES_MAX);
  return {
    describePlace: (name) => `${name}/${CODE_FILE}`,
    open: async (name) => {
      const directory = await realPath(`${path}/${name}`);
      if (directory === undefined) return undefined;
      const code = await Deno.stat(`${directory}/${CODE_FILE}`).catch(() => undefined);
      if (code?.isFile !== true) return undefined;
      const manifest = await readManifest(name, directory);
      return new TypeScriptAgent({ name, directory, manifest, log, slots });
    },
  };
}

interface AgentParts {
  readonly name: string;
  readonly directory: string;
  readonly manifest: AgentManifest;
  readonly log: Log;
  readonly slots: LoadSlots;
}

/** One agent for one model. */
class TypeScriptAgent implements RepositoryAgent {
  readonly #parts: AgentParts;
  /** Functions it exports, known once it was called. */
  #exports: readonly string[] = [];

  constructor(parts: AgentParts) {
    this.#parts = parts;
  }

  async call(call: AgentCall): Promise<AgentOutcome> {
    const name = FUNCTION_NAMES[call.action];
    const isLoad = call.action === "LOAD";
    if (!isLoad && !this.#exports.includes(name)) return { faults: [] };
    const { directory, manifest, slots } = this.#parts;
    const newDirectory = isLoad ? await call.createDirectory() : "";
    const question = {
      module: pathToFileURL(`${directory}/${CODE_FILE}`).href,
      call: name,
      model: {
        name: call.model,
        parameters: { ...call.parameters },
        directory: call.directory,
        newDirectory,
      },
      permissions: this.#permissions(call, newDirectory),
    };
    let lineCount = 0;
    const onLine = (line: string): void => {
      if (lineCount++ < LINES_MAX) this.#tell(call, line);
    };
    try {
      const reply = await slots.run(() => runAgentProcess({ question, manifest, onLine }));
      this.#exports = reply.exports ?? [];
      if (!reply.ok) return { faults: [this.#fault(reply.message, "INVALID_ARG")] };
      return { faults: [], directory: reply.isRewritten ? newDirectory : undefined };
    } catch (reason) {
      const { message, code } = ServerError.from(reason);
      return { faults: [this.#fault(message, code)] };
    }
  }

  #fault(message: string, code: ServerError["code"]) {
    return { message: `repo agent '${this.#parts.name}': ${message}`, code };
  }

  #tell({ model }: AgentCall, line: string): void {
    const { name, log } = this.#parts;
    // deno-lint-ignore no-control-regex
    const text = line.slice(0, LINE_MAX).replaceAll(/[\0-\x1f\x7f]/g, " ");
    log.info(`repo agent '${name}' for model '${model}': ${text}`);
  }

  #permissions(call: AgentCall, newDirectory: string): WorkerPermissions {
    const { directory, manifest } = this.#parts;
    const written = newDirectory === "" ? [] : [newDirectory];
    const given: Record<string, readonly string[]> = {
      ...manifest.permissions,
      read: [directory, call.directory, ...written, ...manifest.permissions.read ?? []],
      write: [...written, ...manifest.permissions.write ?? []],
    };
    const names = [...PERMISSION_NAMES, "ffi", "import"];
    return Object.fromEntries(
      names.map((name) => [name, given[name]?.length ? given[name] : false]),
    );
  }
}

async function readManifest(name: string, directory: string): Promise<AgentManifest> {
  const place = `repo agent '${name}': ${MANIFEST_FILE}`;
  try {
    const path = `${directory}/${MANIFEST_FILE}`;
    const file = await Deno.stat(path);
    if (!file.isFile || file.size > MANIFEST_BYTES_MAX) {
      throw new ServerError("INVALID_ARG", `must be a file of at most ${MANIFEST_BYTES_MAX} bytes`);
    }
    return parseManifest(await Deno.readTextFile(path));
  } catch (reason) {
    if (reason instanceof Deno.errors.NotFound) return parseManifest("");
    throw new ServerError("INVALID_ARG", `${place}: ${ServerError.from(reason).message}`);
  }
}

async function realPath(path: string): Promise<string | undefined> {
  try {
    return await Deno.realPath(path);
  } catch {
    return undefined;
  }
}
