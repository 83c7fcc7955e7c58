import type { DurationCount } from "./duration_count.ts";
import { LatencySummary, type LatencySummarySnapshot } from "./latency.ts";

/** Hits or misses of one model version. Durations are whole microseconds. */
export interface CacheCountSnapshot {
  readonly count: number;
  readonly us: number;
  readonly summary?: LatencySummarySnapshot;
}

/** How a model version used the response cache (observability.md §1.2). */
export interface CacheUseSnapshot {
  readonly hit: CacheCountSnapshot;
  readonly miss: CacheCountSnapshot;
}

/** Counts how a model version uses the response cache. */
export class CacheStatistics {
  readonly hit: CacheCount;
  readonly miss: CacheCount;

  /** @param quantiles of the latency summaries; undefined = none. */
  constructor(quantiles: readonly number[] | undefined) {
    this.hit = new CacheCount(quantiles);
    this.miss = new CacheCount(quantiles);
  }

  snapshot(nowMs: number): CacheUseSnapshot {
    return { hit: this.hit.snapshot(nowMs), miss: this.miss.snapshot(nowMs) };
  }
}

class CacheCount implements DurationCount {
  readonly #summary: LatencySummary | undefined;
  #us = 0;
  count = 0;
  sumMs = 0;

  constructor(quantiles: readonly number[] | undefined) {
    this.#summary = quantiles === undefined ? undefined : new LatencySummary(quantiles);
  }

  add(durationMs: number, nowMs: number): void {
    const wholeUs = Math.floor(durationMs * 1000);
    this.count++;
    this.sumMs += durationMs;
    this.#us += wholeUs;
    this.#summary?.observe(wholeUs, nowMs);
  }

  snapshot(nowMs: number): CacheCountSnapshot {
    return {
      count: this.count,
      us: this.#us,
      ...(this.#summary === undefined ? {} : { summary: this.#summary.snapshot(nowMs) }),
    };
  }
}
