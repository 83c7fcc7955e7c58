import type { MetricsSnapshot } from "../core/metrics_snapshot.ts";
import type { VersionSnapshot } from "../core/statistics.ts";
import type { Family, Sample } from "./families.ts";

type CacheSnapshot = NonNullable<MetricsSnapshot["cache"]>;
type Use = keyof NonNullable<VersionSnapshot["cache"]>;
type CacheCountSnapshot = NonNullable<VersionSnapshot["cache"]>[Use];

function ofVersion(
  use: Use,
  samples: (count: CacheCountSnapshot) => readonly Sample[],
): (version: VersionSnapshot) => readonly Sample[] {
  return ({ cache }) => cache === undefined ? [] : samples(cache[use]);
}

function summary(use: Use): Family<VersionSnapshot> {
  return {
    name: `nv_cache_${use}_summary_per_model`,
    type: "summary",
    help: `Summary of cache ${use} counts/durations per model, in microseconds.`,
    samples: ofVersion(use, ({ summary }) =>
      summary === undefined ? [] : [
        { suffix: "_count", value: summary.count },
        { suffix: "_sum", value: summary.sum },
        ...summary.quantiles.map(({ quantile, value }) => ({
          labels: { quantile: String(quantile) },
          value,
        })),
      ]),
  };
}

function counter(use: Use, name: string, help: string): Family<VersionSnapshot> {
  return {
    name,
    type: "counter",
    help,
    samples: ofVersion(use, ({ count }) => [{ value: count }]),
  };
}

function duration(use: Use, name: string, help: string): Family<VersionSnapshot> {
  return {
    name,
    type: "counter",
    help,
    isLatency: true,
    samples: ofVersion(use, ({ us }) => [{ value: us }]),
  };
}

/** Families of each model version that uses the response cache (observability.md §1.2). */
export const VERSION_CACHE_FAMILIES: readonly Family<VersionSnapshot>[] = [
  counter("hit", "nv_cache_num_hits_per_model", "Number of cache hits per model"),
  duration(
    "hit",
    "nv_cache_hit_duration_per_model",
    "Total cache hit duration per model, in microseconds",
  ),
  counter("miss", "nv_cache_num_misses_per_model", "Number of cache misses per model"),
  duration(
    "miss",
    "nv_cache_miss_duration_per_model",
    "Total cache miss (insert+lookup) duration per model, in microseconds",
  ),
];

/** Their summaries, with `--metrics-config=summary_latencies=true`. */
export const VERSION_CACHE_SUMMARY_FAMILIES = [summary("hit"), summary("miss")];

function gauge(
  name: string,
  help: string,
  value: (cache: CacheSnapshot) => number,
): Family<CacheSnapshot> {
  return { name, type: "gauge", help, samples: (cache) => [{ value: value(cache) }] };
}

/** Families of the whole cache (observability.md §1.3). */
export const CACHE_FAMILIES: readonly Family<CacheSnapshot>[] = [
  gauge("nv_cache_util", "Cache utilization [0.0 - 1.0]", (cache) => cache.utilization),
  gauge(
    "nv_cache_num_entries",
    "Number of responses stored in response cache",
    (cache) => cache.entryCount,
  ),
  gauge(
    "nv_cache_num_hits",
    "Number of cache hits in response cache",
    (cache) => cache.hitCount,
  ),
  gauge(
    "nv_cache_num_misses",
    "Number of cache misses in response cache",
    (cache) => cache.missCount,
  ),
  gauge(
    "nv_cache_num_lookups",
    "Number of cache lookups in response cache",
    (cache) => cache.lookupCount,
  ),
  gauge(
    "nv_cache_num_evictions",
    "Number of cache evictions in response cache",
    (cache) => cache.evictionCount,
  ),
  gauge(
    "nv_cache_lookup_duration",
    "Total cache lookup duration (hit and miss), in microseconds",
    (cache) => cache.lookupUs,
  ),
  gauge(
    "nv_cache_insertion_duration",
    "Total cache insertion duration, in microseconds",
    (cache) => cache.insertionUs,
  ),
];
