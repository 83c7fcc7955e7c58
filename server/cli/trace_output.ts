import type { Clock } from "../core/clock.ts";
import type { Log } from "../core/log.ts";
import type { TraceOptions } from "../core/options_trace.ts";
import { Tracer } from "../core/tracer.ts";

/** How long the collector may take for one request. */
const EXPORT_TIMEOUT_MS = 5_000;

/**
 * Creates what traces requests, with the file system and the network of this machine.
 * @throws ServerError INVALID_ARG when the options cannot be traced by.
 */
export function createTracer(options: TraceOptions, clock: Clock, log: Log): Tracer {
  return new Tracer(options, {
    clock,
    log,
    write: writeText,
    post: postSpans,
    randomBytes: (byteCount) => crypto.getRandomValues(new Uint8Array(byteCount)),
  });
}

async function writeText(path: string, text: string, how: "create" | "append"): Promise<void> {
  await Deno.writeTextFile(path, text, { append: how === "append", create: true });
}

async function postSpans(url: string, body: Uint8Array): Promise<void> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/x-protobuf" },
    body: new Uint8Array(body),
    signal: AbortSignal.timeout(EXPORT_TIMEOUT_MS),
    redirect: "error",
  });
  await response.body?.cancel();
  if (!response.ok) throw new Error(`the collector answered ${response.status}`);
}
