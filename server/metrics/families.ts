import { FAILURE_REASONS, type VersionSnapshot } from "../core/statistics.ts";

/** One line of a family: suffix of the name, further labels, value. */
export interface Sample {
  readonly suffix?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** One Prometheus family and how its samples are found. */
export interface Family<Source> {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram" | "summary";
  readonly help: string;
  /** A duration that `counter_latencies=false` hides. */
  readonly isLatency?: true;
  /** Counted by the instances: those on a GPU have a child of their own. */
  readonly isPerInstance?: true;
  readonly samples: (source: Source) => readonly Sample[];
}

type Duration = keyof VersionSnapshot["durationsUs"];

function one(value: number): readonly Sample[] {
  return [{ value }];
}

function latency(name: string, kind: Duration, help: string): Family<VersionSnapshot> {
  return {
    name,
    type: "counter",
    help,
    isLatency: true,
    isPerInstance: true,
    samples: ({ durationsUs }) => one(durationsUs[kind]),
  };
}

function summary(name: string, kind: Duration, help: string): Family<VersionSnapshot> {
  return {
    name,
    type: "summary",
    help,
    isPerInstance: true,
    samples: ({ summaries, cache }) => {
      if (summaries === undefined) return [];
      // A request that was looked up in the cache counts twice: the reference shows no summary of it.
      if (kind === "request" && cache !== undefined) return [];
      const { quantiles, count, sum } = summaries[kind];
      return [
        { suffix: "_count", value: count },
        { suffix: "_sum", value: sum },
        ...quantiles.map(({ quantile, value }) => ({
          labels: { quantile: String(quantile) },
          value,
        })),
      ];
    },
  };
}

/** Families of each model version, in the order of observability.md §1.2; HELP texts of §1.4. */
export const VERSION_FAMILIES: readonly Family<VersionSnapshot>[] = [
  {
    name: "nv_inference_request_success",
    type: "counter",
    isPerInstance: true,
    help: "Number of successful inference requests, all batch sizes",
    samples: ({ success }) => one(success),
  },
  {
    name: "nv_inference_request_failure",
    type: "counter",
    isPerInstance: true,
    help: "Number of failed inference requests, all batch sizes",
    samples: ({ failures }) =>
      FAILURE_REASONS.map((reason) => ({ labels: { reason }, value: failures[reason] })),
  },
  {
    name: "nv_inference_count",
    type: "counter",
    isPerInstance: true,
    help: "Number of inferences performed (does not include cached requests)",
    samples: ({ inferenceCount }) => one(inferenceCount),
  },
  {
    name: "nv_inference_exec_count",
    type: "counter",
    isPerInstance: true,
    help: "Number of model executions performed (does not include cached requests)",
    samples: ({ executionCount }) => one(executionCount),
  },
  latency(
    "nv_inference_request_duration_us",
    "request",
    "Cumulative inference request duration in microseconds (includes cached requests)",
  ),
  latency(
    "nv_inference_queue_duration_us",
    "queue",
    "Cumulative inference queuing duration in microseconds (includes cached requests)",
  ),
  latency(
    "nv_inference_compute_input_duration_us",
    "compute_input",
    "Cumulative compute input duration in microseconds (does not include cached requests)",
  ),
  latency(
    "nv_inference_compute_infer_duration_us",
    "compute_infer",
    "Cumulative compute inference duration in microseconds (does not include cached requests)",
  ),
  latency(
    "nv_inference_compute_output_duration_us",
    "compute_output",
    "Cumulative inference compute output duration in microseconds (does not include cached requests)",
  ),
  {
    name: "nv_inference_pending_request_count",
    type: "gauge",
    help: "Instantaneous number of pending requests awaiting execution per-model.",
    samples: ({ pending }) => one(pending),
  },
  {
    name: "nv_model_load_duration_secs",
    type: "gauge",
    help: "Model load time in seconds",
    samples: ({ loadSeconds }) => one(loadSeconds),
  },
  {
    name: "nereid_inference_request_received",
    type: "counter",
    help: "Number of accepted inference requests: success + failure + in flight",
    samples: ({ received }) => one(received),
  },
  {
    name: "nereid_inference_inflight_request_count",
    type: "gauge",
    help: "Number of accepted inference requests that are not answered yet",
    samples: ({ inflight }) => one(inflight),
  },
  {
    name: "nereid_batch_retry_count",
    type: "counter",
    help: "Number of batches that failed in the runtime and were run again request by request",
    samples: ({ batchRetryCount }) => one(batchRetryCount),
  },
  {
    name: "nereid_instance_group_fallback_count",
    type: "gauge",
    help: "Number of instance groups that run on a lesser kind of device than they asked for",
    samples: ({ kindFallbackCount = 0 }) => kindFallbackCount === 0 ? [] : one(kindFallbackCount),
  },
];

/** The histogram of `--metrics-config=histogram_latencies=true`. */
export const HISTOGRAM_FAMILIES: readonly Family<VersionSnapshot>[] = [{
  name: "nv_inference_first_response_histogram_ms",
  type: "histogram",
  isPerInstance: true,
  help: "Duration from request to first response in milliseconds",
  samples: ({ firstResponse }) => {
    if (firstResponse === undefined) return [];
    const { buckets, count, sum } = firstResponse;
    return [
      { suffix: "_count", value: count },
      { suffix: "_sum", value: sum },
      ...buckets.map((bucket) => ({
        suffix: "_bucket",
        labels: { le: String(bucket.upperBound) },
        value: bucket.count,
      })),
      { suffix: "_bucket", labels: { le: "+Inf" }, value: count },
    ];
  },
}];

/** The summaries of `--metrics-config=summary_latencies=true`. */
export const SUMMARY_FAMILIES: readonly Family<VersionSnapshot>[] = [
  summary(
    "nv_inference_request_summary_us",
    "request",
    "Summary of inference request duration in microseconds (includes cached requests)",
  ),
  summary(
    "nv_inference_queue_summary_us",
    "queue",
    "Summary of inference queuing duration in microseconds (includes cached requests)",
  ),
  summary(
    "nv_inference_compute_input_summary_us",
    "compute_input",
    "Summary of compute input duration in microseconds (does not include cached requests)",
  ),
  summary(
    "nv_inference_compute_infer_summary_us",
    "compute_infer",
    "Summary of compute inference duration in microseconds (does not include cached requests)",
  ),
  summary(
    "nv_inference_compute_output_summary_us",
    "compute_output",
    "Summary of inference compute output duration in microseconds (does not include cached requests)",
  ),
];
