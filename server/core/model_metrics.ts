import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { Log } from "./log.ts";
import type { StatisticsOptions } from "./statistics.ts";

const FIRST_RESPONSE_FAMILY = "nv_inference_first_response_histogram_ms";

/**
 * What is counted of one model: the options of the server, with the buckets that its `model_metrics` give
 * (observability.md §1.2). Families that nobody can change are told in the log.
 */
export function modelStatisticsOptions(
  { modelMetrics }: ModelConfig,
  options: StatisticsOptions,
  log: Log,
): StatisticsOptions {
  let { firstResponseBuckets } = options;
  for (const { metricIdentifier, metricOptions } of modelMetrics?.metricControl ?? []) {
    const family = metricIdentifier?.family ?? "";
    if (family !== FIRST_RESPONSE_FAMILY) {
      log.warning(
        `Metric family '${family}' in 'metric_identifier' is not a customizable metric in Triton core. ` +
          `Customizable: '${FIRST_RESPONSE_FAMILY}'.`,
      );
    } else if (firstResponseBuckets !== undefined && metricOptions.case === "histogramOptions") {
      firstResponseBuckets = [...new Set(metricOptions.value.buckets)];
    }
  }
  if (firstResponseBuckets === options.firstResponseBuckets) return options;
  return { ...options, firstResponseBuckets: firstResponseBuckets! };
}
