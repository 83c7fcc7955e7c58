import { join } from "node:path";
import type { LoadJob, LoadResult } from "./load_job.ts";
import { machineCpuUs, type MeasuredProcess, processCpuUs } from "./measured_process.ts";
import type { RequestParts } from "./payload.ts";

/** A server under measurement. */
export interface Target {
  readonly name: string;
  readonly process: MeasuredProcess;
  readonly httpPort: number;
  readonly grpcPort: number;
}

/** One measurement. */
export interface Cell {
  readonly perSecond: number;
  readonly p50Us: number;
  readonly p99Us: number;
  /** CPU time of the server per request. */
  readonly cpuUs: number;
  /** Processors that other programs kept busy meanwhile: above 0.2 the figures are worth little. */
  readonly foreign: number;
  readonly errors: number;
  readonly firstError: string;
}

const WARM_SECONDS = 0.5;
/** Once per server and kind of request: until the compiler is done with the code on the way. */
const FIRST_WARM_SECONDS = 4;
const FIRST_WARM_REQUESTS = 10_000;
const warmed = new WeakMap<MeasuredProcess, Set<string>>();
/** Processors that other programs may keep busy without a measurement being tried again. */
export const QUIET = 0.2;

/** Settings of {@linkcode measure}. */
export interface MeasureOptions {
  readonly seconds: number;
  /** How often a measurement is made while other programs disturb it; the quietest counts. */
  readonly tries: number;
  readonly loadProcessor: number | undefined;
}

/** Puts load on a target from a process of its own and measures both. */
export async function measure(
  target: Target,
  request: RequestParts,
  concurrency: number,
  options: MeasureOptions,
): Promise<Cell> {
  const kinds = warmed.get(target.process) ?? new Set();
  warmed.set(target.process, kinds);
  const isFirst = !kinds.has(request.bodyFile);
  kinds.add(request.bodyFile);
  const job: LoadJob = {
    ...request,
    port: request.way.startsWith("grpc") ? target.grpcPort : target.httpPort,
    concurrency,
    warmSeconds: isFirst ? FIRST_WARM_SECONDS : WARM_SECONDS,
    warmRequests: isFirst ? FIRST_WARM_REQUESTS : 0,
    seconds: options.seconds,
  };
  let best = await measureOnce(target, job, options);
  for (let count = 1; count < options.tries && best.foreign > QUIET; count++) {
    const next = await measureOnce(target, job, options);
    if (next.foreign < best.foreign) best = next;
  }
  return best;
}

async function measureOnce(target: Target, job: LoadJob, options: MeasureOptions): Promise<Cell> {
  const script = join(import.meta.dirname!, "load.ts");
  const command = [Deno.execPath(), "run", "-A", script, JSON.stringify(job)];
  const whole = options.loadProcessor === undefined
    ? command
    : ["taskset", "-c", String(options.loadProcessor), ...command];
  const child = new Deno.Command(whole[0]!, {
    args: whole.slice(1),
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const sample = async () => [
    await target.process.cpuUs(),
    await processCpuUs(child.pid),
    await machineCpuUs(),
  ];
  let text = "";
  const samples: number[][] = [];
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (samples.length === 0 && text.includes("begin\n")) samples.push(await sample());
    if (samples.length === 1 && text.includes("end\n")) samples.push(await sample());
  }
  const { success } = await child.status;
  const last = text.trim().split("\n").at(-1) ?? "";
  if (!success || !last.startsWith("{")) throw new Error(`The load generator failed: ${text}`);
  const result = JSON.parse(last) as LoadResult;
  const [server, load, machine] = samples[0]!.map((value, index) => samples[1]![index]! - value);
  return {
    perSecond: result.requests / result.seconds,
    p50Us: result.p50Us,
    p99Us: result.p99Us,
    cpuUs: server! / Math.max(1, result.requests),
    foreign: Math.max(0, machine! - server! - load!) / (result.seconds * 1_000_000),
    errors: result.errors,
    firstError: result.firstError,
  };
}
