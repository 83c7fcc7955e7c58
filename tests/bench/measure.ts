import { join } from "node:path";
import type { LoadJob, LoadResult } from "./load_job.ts";
import type { MeasuredProcess } from "./measured_process.ts";
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
  readonly errors: number;
  readonly firstError: string;
}

const WARM_SECONDS = 0.7;

/** Puts load on a target from a process of its own and measures both. */
export async function measure(
  target: Target,
  request: RequestParts,
  concurrency: number,
  options: { readonly seconds: number; readonly loadProcessor: number | undefined },
): Promise<Cell> {
  const job: LoadJob = {
    ...request,
    port: request.way.startsWith("grpc") ? target.grpcPort : target.httpPort,
    concurrency,
    warmSeconds: WARM_SECONDS,
    seconds: options.seconds,
  };
  const script = join(import.meta.dirname!, "load.ts");
  const command = [Deno.execPath(), "run", "-A", script, JSON.stringify(job)];
  const whole = options.loadProcessor === undefined
    ? command
    : ["taskset", "-c", String(options.loadProcessor), ...command];
  const child = new Deno.Command(whole[0]!, {
    args: whole.slice(1),
    stdout: "piped",
    stderr: "inherit",
  })
    .spawn();
  let text = "";
  const cpu: number[] = [];
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (cpu.length === 0 && text.includes("begin\n")) cpu.push(await target.process.cpuUs());
    if (cpu.length === 1 && text.includes("end\n")) cpu.push(await target.process.cpuUs());
  }
  const { success } = await child.status;
  const last = text.trim().split("\n").at(-1) ?? "";
  if (!success || !last.startsWith("{")) throw new Error(`The load generator failed: ${text}`);
  const result = JSON.parse(last) as LoadResult;
  return {
    perSecond: result.requests / result.seconds,
    p50Us: result.p50Us,
    p99Us: result.p99Us,
    cpuUs: (cpu[1]! - cpu[0]!) / Math.max(1, result.requests),
    errors: result.errors,
    firstError: result.firstError,
  };
}
