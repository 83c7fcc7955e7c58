import type { WebGpuList } from "../../backends/device_list.ts";
import { locateOrtLibrary } from "../../ffi/onnxruntime/locate.ts";
import { findAdapters } from "./webgpu_adapters.ts";
import { PROBE_COMMAND, type ProbeAnswer, type ProbeRequest } from "./probe_message.ts";

/** A look that takes longer than this hangs. */
const PROBE_LIMIT_MS = 20_000;
/** An answer is a line; what libraries print around it is not read beyond this. */
const OUTPUT_LENGTH_MAX = 1024 * 1024;

/** How a process for a look is started, for tests. */
export interface ProbeOptions {
  readonly limitMs?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Ends the process when it fires. */
  readonly signal?: AbortSignal | undefined;
}

/** Looks at one thing in a process of its own: a driver that crashes or hangs takes only that. Never rejects. */
export async function runProbe(
  request: ProbeRequest,
  { limitMs = PROBE_LIMIT_MS, env = {}, signal }: ProbeOptions = {},
): Promise<ProbeAnswer> {
  if (signal?.aborted) return { error: "the server is exiting" };
  if (!await mayRun(Deno.execPath())) {
    return { error: "no process for a look may be started here (--allow-run)" };
  }
  let child: Deno.ChildProcess;
  try {
    child = startProbe(request, env);
  } catch (reason) {
    return { error: `no process for a look could be started: ${describe(reason)}` };
  }
  const end = (): void => {
    try {
      child.kill("SIGKILL");
    } catch {
      // It has ended by itself.
    }
  };
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    end();
  }, limitMs);
  signal?.addEventListener("abort", end, { once: true });
  try {
    const [output, status] = await Promise.all([readAll(child.stdout), child.status]);
    if (isLate) return { error: `no answer within ${limitMs / 1000} s` };
    if (status.signal !== null) {
      return { error: `it ended the process that looked: ${status.signal}` };
    }
    return parseAnswer(output) ??
      { error: `no answer: the process that looked gave ${status.code}` };
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
  }
}

/** The WebGPU adapters of `navigator.gpu` and of the native ONNX Runtime. Never rejects. */
export async function findWebGpuAdapters(
  ortLibrary: string | undefined,
  options: ProbeOptions = {},
): Promise<WebGpuList> {
  const [own, native] = await Promise.all([
    findOwnAdapters(options),
    probeOnnxRuntime(ortLibrary, options),
  ]);
  const reasons: Record<string, string> = {};
  const adapters = [...own.adapters ?? []];
  if (own.error !== undefined) reasons["navigator.gpu"] = own.error;
  const offer = native.providers?.["WebGpuExecutionProvider"];
  if (offer === "") {
    const [first] = adapters;
    adapters.push({
      id: 0,
      source: "onnxruntime",
      // The library does not tell which one it takes; with one adapter there is no other.
      name: adapters.length === 1 ? first!.name : "default adapter",
      vendor: adapters.length === 1 ? first!.vendor : "",
      isSoftware: adapters.length > 0 && adapters.every(({ isSoftware }) => isSoftware),
    });
  } else {
    reasons["onnxruntime"] = offer ?? native.error ??
      "the library was built without the WebGPU provider";
  }
  return { adapters, reasons };
}

/** Where no process may be started the look is taken in this one: it needs no permission. */
async function findOwnAdapters(options: ProbeOptions): Promise<ProbeAnswer> {
  if (await mayRun(Deno.execPath())) return await runProbe({ what: "webgpu" }, options);
  try {
    return await findAdapters();
  } catch (reason) {
    return { error: describe(reason) };
  }
}

/** Asks the ONNX Runtime library for version and providers. */
export async function probeOnnxRuntime(
  configured: string | undefined,
  options: ProbeOptions = {},
): Promise<ProbeAnswer & { readonly path?: string }> {
  const { candidates } = locateOrtLibrary(configured);
  let last: ProbeAnswer = { error: "not found" };
  for (const { path } of candidates) {
    const answer = await runProbe({ what: "onnxruntime", path }, options);
    if (answer.error === undefined) return { ...answer, path };
    last = answer;
  }
  return last;
}

/** Whether a program may be started; without the permission somebody at a terminal would be asked. */
export async function mayRun(command: string): Promise<boolean> {
  return (await Deno.permissions.query({ name: "run", command })).state === "granted";
}

function startProbe(
  request: ProbeRequest,
  env: Readonly<Record<string, string>>,
): Deno.ChildProcess {
  const main = new URL("../../mod.ts", import.meta.url).href;
  const program = Deno.build.standalone ? [] : ["run", "-A", "--quiet", "--no-prompt", main];
  return new Deno.Command(Deno.execPath(), {
    args: [...program, PROBE_COMMAND, JSON.stringify(request)],
    stdin: "null",
    stdout: "piped",
    stderr: "null",
    env,
  }).spawn();
}

async function readAll(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  let text = "";
  for await (const part of stream.pipeThrough(new TextDecoderStream())) {
    if (text.length < OUTPUT_LENGTH_MAX) text += part;
  }
  return text;
}

/** The last line that is an answer: libraries may print, too. */
function parseAnswer(output: string): ProbeAnswer | undefined {
  for (const line of output.trim().split("\n").reverse()) {
    if (!line.startsWith("{")) continue;
    try {
      return JSON.parse(line) as ProbeAnswer;
    } catch {
      // Cut off, or not ours.
    }
  }
  return undefined;
}

function describe(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
