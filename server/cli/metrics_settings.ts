import { ServerError } from "../../proto/status.ts";
import type { StatisticsOptions } from "../core/inference_server.ts";
import { parseBoolValue } from "./flag_values.ts";

const DEFAULT_BUCKETS_MS = [100, 500, 2000, 5000];
const DEFAULT_QUANTILES = [0.5, 0.9, 0.95, 0.99, 0.999];

/** Settings of `--metrics-config` that hold for latencies (observability.md §1.2). */
export interface MetricsSettings {
  readonly counterLatencies: boolean;
  readonly statistics: StatisticsOptions;
}

/** Reads the settings of `--metrics-config`; settings with other names are ignored. */
export function readMetricsSettings(settings: ReadonlyMap<string, string>): MetricsSettings {
  const isOn = (key: string, preset: string): boolean => {
    try {
      return parseBoolValue(settings.get(key) ?? preset);
    } catch (reason) {
      const { message } = ServerError.from(reason);
      throw new ServerError("INVALID_ARG", `Bad option: "--metrics-config".\n${key}: ${message}`);
    }
  };
  return {
    counterLatencies: isOn("counter_latencies", "true"),
    statistics: {
      ...(isOn("histogram_latencies", "false") ? { firstResponseBuckets: DEFAULT_BUCKETS_MS } : {}),
      ...(isOn("summary_latencies", "false")
        ? { summaryQuantiles: readQuantiles(settings.get("summary_quantiles")) }
        : {}),
    },
  };
}

/** `<quantile>:<error>,…`; the error is for estimators that need one, items that make no sense are skipped. */
function readQuantiles(text: string | undefined): readonly number[] {
  if (text === undefined) return DEFAULT_QUANTILES;
  const numbers = text.split(",").map((item) => Number.parseFloat(item.split(":")[0]!));
  return numbers.filter((quantile) => quantile >= 0 && quantile <= 1);
}
