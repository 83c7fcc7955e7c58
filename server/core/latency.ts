/** Cumulative counts of a histogram, as Prometheus prints them. */
export interface LatencyHistogramSnapshot {
  readonly buckets: readonly { readonly upperBound: number; readonly count: number }[];
  readonly sum: number;
  readonly count: number;
}

/** Quantiles over the recent past, count and sum over all time. */
export interface LatencySummarySnapshot {
  readonly quantiles: readonly { readonly quantile: number; readonly value: number }[];
  readonly sum: number;
  readonly count: number;
}

/** A histogram with fixed buckets. */
export class LatencyHistogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = [...bounds].sort((a, b) => a - b);
    this.#counts = this.#bounds.map(() => 0);
  }

  observe(value: number): void {
    this.#sum += value;
    this.#count++;
    for (let index = 0; index < this.#bounds.length; index++) {
      if (value <= this.#bounds[index]!) {
        this.#counts[index]!++;
        return;
      }
    }
  }

  snapshot(): LatencyHistogramSnapshot {
    let count = 0;
    const buckets = this.#bounds.map((upperBound, index) => {
      count += this.#counts[index]!;
      return { upperBound, count };
    });
    return { buckets, sum: this.#sum, count: this.#count };
  }
}

const WINDOW_MS = 60_000;
const SLICE_COUNT = 5;
const SLICE_MS = WINDOW_MS / SLICE_COUNT;
const SAMPLES_PER_SLICE = 2048;

interface Slice {
  startMs: number;
  seen: number;
  readonly samples: number[];
}

/**
 * Quantiles over the last minute, from a bounded random sample of each twelve-second slice: memory and time are bounded
 * whatever the rate, and quantiles are exact below 170 requests per second.
 */
export class LatencySummary {
  readonly #quantiles: readonly number[];
  readonly #random: () => number;
  readonly #slices: Slice[] = [];
  #sum = 0;
  #count = 0;

  constructor(quantiles: readonly number[], random: () => number = Math.random) {
    this.#quantiles = quantiles;
    this.#random = random;
  }

  observe(value: number, nowMs: number): void {
    this.#sum += value;
    this.#count++;
    let slice = this.#slices.at(-1);
    if (slice === undefined || nowMs - slice.startMs >= SLICE_MS) {
      slice = { startMs: nowMs, seen: 0, samples: [] };
      this.#slices.push(slice);
      if (this.#slices.length > SLICE_COUNT) this.#slices.shift();
    }
    slice.seen++;
    if (slice.samples.length < SAMPLES_PER_SLICE) {
      slice.samples.push(value);
      return;
    }
    const place = Math.floor(this.#random() * slice.seen);
    if (place < SAMPLES_PER_SLICE) slice.samples[place] = value;
  }

  snapshot(nowMs: number): LatencySummarySnapshot {
    const recent = this.#slices.filter((slice) => nowMs - slice.startMs < WINDOW_MS);
    const weighted = recent.flatMap(({ samples, seen }) =>
      samples.map((value) => ({ value, weight: seen / samples.length }))
    ).sort((a, b) => a.value - b.value);
    const total = weighted.reduce((sum, { weight }) => sum + weight, 0);
    return {
      quantiles: this.#quantiles.map((quantile) => ({
        quantile,
        value: weightedQuantile(weighted, total * quantile),
      })),
      sum: this.#sum,
      count: this.#count,
    };
  }
}

function weightedQuantile(
  sorted: readonly { readonly value: number; readonly weight: number }[],
  rank: number,
): number {
  let reached = 0;
  for (const { value, weight } of sorted) {
    reached += weight;
    if (reached >= rank) return value;
  }
  return sorted.at(-1)?.value ?? NaN;
}
