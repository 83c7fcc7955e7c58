import assert from "node:assert/strict";
import { VersionStatistics } from "../core/statistics.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { formatMetrics } from "./exposition.ts";

function version(model: string, cached: boolean, quantiles?: number[]) {
  const statistics = new VersionStatistics({
    model,
    version: 1,
    tags: {},
    clock: new FakeClock(),
    statistics: quantiles === undefined ? {} : { summaryQuantiles: quantiles },
    cached,
  });
  if (cached) statistics.cacheMiss(0.0259);
  return statistics.snapshot();
}

const CACHE = {
  entryCount: 2,
  lookupCount: 3,
  hitCount: 1,
  missCount: 2,
  evictionCount: 4,
  lookupUs: 27,
  insertionUs: 48,
  utilization: 0.25,
};

Deno.test("formatMetrics() shows cache counters of versions that use the cache only", () => {
  const text = formatMetrics({ versions: [version("m", true), version("plain", false)] });
  const lines = text.split("\n").filter((line) => line.startsWith("nv_cache"));
  assert.deepEqual(lines, [
    'nv_cache_num_hits_per_model{model="m",version="1"} 0',
    'nv_cache_hit_duration_per_model{model="m",version="1"} 0',
    'nv_cache_num_misses_per_model{model="m",version="1"} 1',
    'nv_cache_miss_duration_per_model{model="m",version="1"} 25',
  ]);
  assert.ok(!formatMetrics({ versions: [version("plain", false)] }).includes("nv_cache"));
});

Deno.test("formatMetrics() hides cache durations without counter latencies", () => {
  const options = { counterLatencies: false, cpu: undefined };
  const text = formatMetrics({ versions: [version("m", true)] }, options);
  assert.ok(text.includes("nv_cache_num_misses_per_model{"));
  assert.ok(!text.includes("_duration_per_model"));
});

Deno.test("formatMetrics() shows summaries of the cache, and none of requests, of versions that use it", () => {
  const text = formatMetrics({ versions: [version("m", true, [0.5]), version("n", false, [0.5])] });
  assert.ok(text.includes('nv_cache_miss_summary_per_model_count{model="m",version="1"} 1\n'));
  assert.ok(text.includes('nv_cache_hit_summary_per_model_count{model="m",version="1"} 0\n'));
  assert.ok(!text.includes('nv_cache_hit_summary_per_model_count{model="n"'));
  assert.ok(!text.includes('nv_inference_request_summary_us_count{model="m"'));
  assert.ok(text.includes('nv_inference_request_summary_us_count{model="n"'));
  assert.ok(text.includes('nv_inference_queue_summary_us_count{model="m"'));
});

Deno.test("formatMetrics() does not name the summary of requests when every version uses the cache", () => {
  const text = formatMetrics({ versions: [version("m", true, [0.5])] });
  assert.ok(!text.includes("nv_inference_request_summary"));
  assert.ok(text.includes("# TYPE nv_inference_queue_summary_us summary\n"));
});

Deno.test("formatMetrics() shows the whole cache of a server that has one", () => {
  const text = formatMetrics({ versions: [], cache: CACHE });
  const lines = text.split("\n").filter((line) => line.startsWith("nv_cache"));
  assert.deepEqual(lines, [
    "nv_cache_util 0.25",
    "nv_cache_num_entries 2",
    "nv_cache_num_hits 1",
    "nv_cache_num_misses 2",
    "nv_cache_num_lookups 3",
    "nv_cache_num_evictions 4",
    "nv_cache_lookup_duration 27",
    "nv_cache_insertion_duration 48",
  ]);
});
