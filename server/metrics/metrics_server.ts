import type { MetricsSnapshot } from "../core/metrics_snapshot.ts";
import type { HttpHandler, HttpResponse, RequestHead } from "../transport/transport.ts";
import type { CpuSampler } from "./cpu_metrics.ts";
import { formatMetrics } from "./exposition.ts";
import type { GpuSampler, MemoryPoolSample } from "./gpu_metrics.ts";

/** How the metrics service answers. */
export interface MetricsOptions {
  /** False with `--metrics-config=counter_latencies=false`. */
  readonly counterLatencies?: boolean;
  /** Absent with `--allow-cpu-metrics=false`. */
  readonly cpu?: CpuSampler | undefined;
  /** Absent with `--allow-gpu-metrics=false`. */
  readonly gpu?: GpuSampler | undefined;
  /** The pool of pinned memory, whose numbers change. */
  readonly pinnedMemory?: MemoryPoolSample | undefined;
}

const encoder = new TextEncoder();
const PATHS = new Set(["/metrics", "/metrics/"]);

/** Serves `GET /metrics` (observability.md §1). */
export function createMetricsHandler(
  source: () => MetricsSnapshot,
  options: MetricsOptions = {},
): HttpHandler {
  const { counterLatencies = true, cpu, gpu, pinnedMemory } = options;
  return {
    admit: refuse,
    handle: async (request) => {
      const refusal = refuse(request);
      if (refusal !== undefined) return refusal;
      const [sample, gpus] = await Promise.all([cpu?.sample(), gpu?.sample()]);
      // The snapshot is taken after the last wait, so that one answer shows one moment.
      const text = formatMetrics(source(), { counterLatencies, cpu: sample, gpus, pinnedMemory });
      return {
        status: 200,
        headers: [["content-type", "text/plain; charset=utf-8"]],
        body: [encoder.encode(text)],
      };
    },
  };
}

/** The answer to a request that is not `GET /metrics`. */
function refuse({ method, target }: RequestHead): HttpResponse | undefined {
  const path = target.split("?", 1)[0]!;
  if (!PATHS.has(path)) return errorAnswer(404, "Not Found");
  if (method !== "GET") return errorAnswer(405, "Method Not Allowed");
  return undefined;
}

function errorAnswer(status: number, error: string): HttpResponse {
  return {
    status,
    headers: [["content-type", "application/json"]],
    body: [encoder.encode(JSON.stringify({ error }))],
  };
}
