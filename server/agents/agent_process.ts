import { fileURLToPath } from "node:url";
import { ServerError } from "../../proto/status.ts";
import type { AgentManifest } from "./agent_manifest.ts";
import { type AgentQuestion, type AgentReply, ANSWER_MARK } from "./agent_message.ts";

/** What an agent may print, its answer included. */
const OUTPUT_BYTES_MAX = 1024 * 1024;
const ERROR_LINES = 3;
const MEMORY_LOOK_MS = 100;
/** What Deno takes for itself, beside the heap. */
const OWN_MEMORY_MIB = 256;

/** What the process of an agent is started with. */
export interface AgentProcessOptions {
  readonly question: AgentQuestion;
  readonly manifest: AgentManifest;
  /** Called with each line that the agent prints. */
  readonly onLine: (line: string) => void;
}

/**
 * Runs one call of an agent in a process of its own: whatever it does, the server goes on. There it runs in a Worker
 * that has only the permissions of the question, with a bound on time, memory and output.
 * @throws ServerError when the process ends without an answer, or goes beyond a bound.
 */
export async function runAgentProcess(options: AgentProcessOptions): Promise<AgentReply> {
  const { question, manifest, onLine } = options;
  const child = startProcess(question, manifest);
  let excess: string | undefined;
  const kill = (why?: string): void => {
    excess ??= why;
    try {
      child.kill("SIGKILL");
    } catch {
      // It has ended already.
    }
  };
  const killAtExit = (): void => kill();
  globalThis.addEventListener("unload", killAtExit);
  const timer = setTimeout(
    () => kill(`it took longer than ${manifest.timeoutMs / 1000} s`),
    manifest.timeoutMs,
  );
  const memoryMib = manifest.memoryMib + OWN_MEMORY_MIB;
  const look = setInterval(async () => {
    if (await residentMib(child.pid) > memoryMib) {
      kill(`it took more than ${memoryMib} MiB of memory`);
    }
  }, MEMORY_LOOK_MS);
  const overflow = () => kill(`it printed more than ${OUTPUT_BYTES_MAX} bytes`);
  try {
    const [output, errors, status] = await Promise.all([
      readBounded(child.stdout, overflow),
      readBounded(child.stderr, overflow),
      child.status,
      writeAll(child.stdin, JSON.stringify(question)),
    ]);
    const lines = `${output}\n${errors}`.split("\n").filter((line) => line.trim() !== "");
    const answer = lines.findLast((line) => line.startsWith(ANSWER_MARK));
    lines.filter((line) => line !== answer).forEach(onLine);
    if (excess !== undefined) throw new ServerError("UNAVAILABLE", excess);
    if (answer !== undefined) return parseReply(answer.slice(ANSWER_MARK.length));
    const last = errors.trim().split("\n").slice(0, ERROR_LINES).join(" ").slice(0, 500);
    const how = status.signal === null ? `code ${status.code}` : status.signal;
    const why = last === "" ? "" : `: ${last}`;
    throw new ServerError("INTERNAL", `its process ended without an answer (${how})${why}`);
  } finally {
    clearTimeout(timer);
    clearInterval(look);
    globalThis.removeEventListener("unload", killAtExit);
    kill();
  }
}

function startProcess(question: AgentQuestion, manifest: AgentManifest): Deno.ChildProcess {
  const host = import.meta.resolve("./agent_host.ts");
  const isLocal = host.startsWith("file:");
  const own = isLocal ? [fileURLToPath(new URL(".", host))] : [];
  const allowed = Object.entries(question.permissions).flatMap(([name, items]) => {
    const needed = [...items || [], ...name === "read" ? own : []];
    return needed.length === 0 ? [] : [allowFlag(name, needed)];
  });
  try {
    return new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "--quiet",
        "--no-prompt",
        "--no-config",
        "--no-lock",
        "--no-npm",
        isLocal ? "--no-remote" : "--cached-only",
        "--no-check",
        "--unstable-worker-options",
        `--v8-flags=--max-old-space-size=${manifest.memoryMib}`,
        ...allowed,
        host,
      ],
      clearEnv: true,
      env: environmentOf(manifest),
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  } catch (reason) {
    const { message } = ServerError.from(reason);
    throw new ServerError("INTERNAL", `its process cannot be started: ${message}`);
  }
}

/** The process must be allowed what the Worker in it is, and to read its own code; a command line cannot tell a comma in a path. */
function allowFlag(name: string, items: readonly string[]): string {
  const flag = `--allow-${name}`;
  return items.some((item) => item.includes(",")) ? flag : `${flag}=${items.join()}`;
}

/** Nothing of the server's environment but what Deno needs to find its cache, and what the agent may know. */
function environmentOf({ permissions }: AgentManifest): Record<string, string> {
  const names = ["HOME", "DENO_DIR", "XDG_CACHE_HOME", ...permissions.env ?? []];
  if (permissions.run !== undefined) names.push("PATH");
  const environment: Record<string, string> = { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" };
  for (const name of names) {
    const value = Deno.env.get(name);
    if (value !== undefined) environment[name] = value;
  }
  return environment;
}

/** Memory that buffers outside of the heap take counts, too; 0 where the system does not tell. */
async function residentMib(pid: number): Promise<number> {
  const text = await Deno.readTextFile(`/proc/${pid}/status`).catch(() => "");
  return Number(/^VmRSS:\s*(\d+) kB$/m.exec(text)?.[1] ?? 0) / 1024;
}

async function writeAll(stream: WritableStream<Uint8Array>, text: string): Promise<void> {
  const writer = stream.getWriter();
  try {
    await writer.write(new TextEncoder().encode(text));
    await writer.close();
  } catch {
    // A process that reads nothing ends without an answer, and that is told.
  }
}

async function readBounded(
  stream: ReadableStream<Uint8Array>,
  onOverflow: () => void,
): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let byteSize = 0;
  for await (const chunk of stream) {
    byteSize += chunk.byteLength;
    if (byteSize > OUTPUT_BYTES_MAX) onOverflow();
    else text += decoder.decode(chunk, { stream: true });
  }
  return text;
}

function parseReply(text: string): AgentReply {
  try {
    const reply = JSON.parse(text);
    const exports = Array.isArray(reply.exports) ? reply.exports : [];
    if (reply.ok === true) return { ok: true, isRewritten: reply.isRewritten === true, exports };
    return { ok: false, message: String(reply.message), exports };
  } catch {
    throw new ServerError("INTERNAL", "its answer cannot be read");
  }
}
