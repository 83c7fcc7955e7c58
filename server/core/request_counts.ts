import type { Clock } from "./clock.ts";
import {
  LatencyHistogram,
  type LatencyHistogramSnapshot,
  LatencySummary,
  type LatencySummarySnapshot,
} from "./latency.ts";
import type { FailureReason } from "./scheduler/job.ts";
import type { RequestDuration, StatisticsOptions } from "./statistics.ts";

/** Plain copy of what was counted of requests. Durations are whole microseconds. */
export interface RequestCountsSnapshot {
  readonly success: number;
  readonly failures: Readonly<Record<FailureReason, number>>;
  readonly inferenceCount: number;
  readonly executionCount: number;
  readonly durationsUs: Readonly<Record<RequestDuration, number>>;
  readonly firstResponse?: LatencyHistogramSnapshot;
  readonly summaries?: Readonly<Record<RequestDuration, LatencySummarySnapshot>>;
}

/** Counts requests of one model version: those of its instances on one GPU, or all the others. */
export class RequestCounts {
  readonly failures: Record<FailureReason, number> = {
    REJECTED: 0,
    CANCELED: 0,
    BACKEND: 0,
    OTHER: 0,
  };
  readonly sumsMs: Record<RequestDuration, number> = mapDurations(() => 0);
  readonly sumsUs: Record<RequestDuration, number> = mapDurations(() => 0);
  success = 0;
  inferenceCount = 0;
  executionCount = 0;
  readonly histogram: LatencyHistogram | undefined;
  readonly #summaries: Record<RequestDuration, LatencySummary> | undefined;
  readonly #clock: Clock;

  constructor({ firstResponseBuckets, summaryQuantiles }: StatisticsOptions, clock: Clock) {
    this.#clock = clock;
    if (firstResponseBuckets !== undefined) {
      this.histogram = new LatencyHistogram(firstResponseBuckets);
    }
    if (summaryQuantiles !== undefined) {
      this.#summaries = mapDurations(() => new LatencySummary(summaryQuantiles));
    }
  }

  add(kind: RequestDuration, durationMs: number): void {
    this.sumsMs[kind] += durationMs;
    const wholeUs = Math.floor(durationMs * 1000);
    this.sumsUs[kind] += wholeUs;
    if (this.#summaries !== undefined) {
      this.#summaries[kind].observe(wholeUs, this.#clock.now());
    }
  }

  snapshot(): RequestCountsSnapshot {
    const summaries = this.#summaries;
    return {
      success: this.success,
      failures: { ...this.failures },
      inferenceCount: this.inferenceCount,
      executionCount: this.executionCount,
      durationsUs: { ...this.sumsUs },
      ...(this.histogram === undefined ? {} : { firstResponse: this.histogram.snapshot() }),
      ...(summaries === undefined ? {} : {
        summaries: mapDurations((kind) => summaries[kind].snapshot(this.#clock.now())),
      }),
    };
  }
}

/** Adds up what can be added up; histogram and summaries are those of the first. */
export function sumRequestCounts(
  counts: readonly RequestCountsSnapshot[],
): RequestCountsSnapshot {
  if (counts.length === 1) return counts[0]!;
  const sum = (valueOf: (each: RequestCountsSnapshot) => number) =>
    counts.reduce((total, each) => total + valueOf(each), 0);
  const failed = (reason: FailureReason) => sum(({ failures }) => failures[reason]);
  return {
    ...counts[0]!,
    success: sum(({ success }) => success),
    failures: {
      REJECTED: failed("REJECTED"),
      CANCELED: failed("CANCELED"),
      BACKEND: failed("BACKEND"),
      OTHER: failed("OTHER"),
    },
    inferenceCount: sum(({ inferenceCount }) => inferenceCount),
    executionCount: sum(({ executionCount }) => executionCount),
    durationsUs: mapDurations((kind) => sum(({ durationsUs }) => durationsUs[kind])),
  };
}

function mapDurations<Value>(make: (kind: RequestDuration) => Value) {
  return {
    request: make("request"),
    queue: make("queue"),
    compute_input: make("compute_input"),
    compute_infer: make("compute_infer"),
    compute_output: make("compute_output"),
  };
}
