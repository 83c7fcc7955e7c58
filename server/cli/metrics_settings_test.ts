import assert from "node:assert/strict";
import { readMetricsSettings } from "./metrics_settings.ts";

Deno.test("readMetricsSettings() has counters only by default", () => {
  assert.deepEqual(readMetricsSettings(new Map()), { counterLatencies: true, statistics: {} });
});

Deno.test("readMetricsSettings() reads histograms and quantiles", () => {
  const settings = new Map([
    ["counter_latencies", "false"],
    ["histogram_latencies", "true"],
    ["summary_latencies", "on"],
    ["summary_quantiles", "0.5:0.1,bad,0.75:0.01,7"],
  ]);
  assert.deepEqual(readMetricsSettings(settings), {
    counterLatencies: false,
    statistics: { firstResponseBuckets: [100, 500, 2000, 5000], summaryQuantiles: [0.5, 0.75] },
  });
});

Deno.test("readMetricsSettings() refuses words that are no bool", () => {
  assert.throws(() => readMetricsSettings(new Map([["summary_latencies", "maybe"]])), /maybe/);
});
