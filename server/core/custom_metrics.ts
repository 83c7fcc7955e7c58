import type { CustomMetric, CustomMetricFamily, MetricKind } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import { createSeries, type CustomSeries } from "./custom_series.ts";
import { checkBuckets, checkFamily, checkLabels } from "./custom_metrics_check.ts";
import type { CustomFamilySnapshot } from "./metrics_snapshot.ts";

/** What models may have together. */
const FAMILIES_MAX = 1000;
const SERIES_MAX = 50_000;

interface SharedSeries {
  readonly labels: Readonly<Record<string, string>>;
  readonly values: CustomSeries;
  ownerCount: number;
}

interface SharedFamily {
  readonly name: string;
  readonly kind: MetricKind;
  readonly description: string;
  readonly series: Map<string, SharedSeries>;
  ownerCount: number;
}

/**
 * The metrics of all models together (python-backend.md §A6): a family is known by its name, a series by its labels,
 * and each is there as long as somebody owns it.
 */
export class CustomMetrics {
  readonly #families = new Map<string, SharedFamily>();
  #seriesCount = 0;

  /**
   * A family, shared with those who asked for it before; the first description counts.
   * @throws ServerError INVALID_ARG for a bad name or one that another kind has; UNAVAILABLE when there are too many.
   */
  openFamily(kind: MetricKind, name: string, description: string): CustomMetricFamily {
    const family = this.#families.get(name) ?? this.#createFamily(kind, name, description);
    if (family.kind !== kind) {
      throw new ServerError(
        "INVALID_ARG",
        `Family name already exists with different type: '${name}' is a ${family.kind}, not a ${kind}`,
      );
    }
    family.ownerCount++;
    return this.#own(family);
  }

  /** Everything that has a series, sorted by name, in one step. */
  snapshot(): CustomFamilySnapshot[] {
    return [...this.#families.values()]
      .filter(({ series }) => series.size > 0)
      .sort((a, b) => a.name < b.name ? -1 : 1)
      .map(({ name, kind, description, series }) => ({
        name,
        kind,
        description,
        series: [...series.values()].map(({ labels, values }) => ({
          labels,
          value: values.snapshot(),
        })),
      }));
  }

  #createFamily(kind: MetricKind, name: string, description: string): SharedFamily {
    checkFamily(kind, name, description, this.#families);
    if (this.#families.size >= FAMILIES_MAX) {
      throw new ServerError(
        "UNAVAILABLE",
        `cannot create the metric family '${name}': models have ${FAMILIES_MAX} families already`,
      );
    }
    const family = { name, kind, description, series: new Map(), ownerCount: 0 };
    this.#families.set(name, family);
    return family;
  }

  /** What one owner of a family holds: with it, all series go that were made through it. */
  #own(family: SharedFamily): CustomMetricFamily {
    const metrics = new Set<CustomMetric>();
    let isDisposed = false;
    return {
      metric: (labels, buckets) => {
        if (isDisposed) throw familyGone();
        const metric = this.#openMetric(family, labels, buckets, () => metrics.delete(metric));
        metrics.add(metric);
        return metric;
      },
      [Symbol.dispose]: () => {
        if (isDisposed) return;
        isDisposed = true;
        for (const metric of metrics) metric[Symbol.dispose]();
        if (--family.ownerCount === 0) this.#families.delete(family.name);
      },
    };
  }

  #openMetric(
    family: SharedFamily,
    labels: Readonly<Record<string, string>>,
    buckets: readonly number[] | undefined,
    onDispose: () => void,
  ): CustomMetric {
    checkBuckets(family, buckets);
    const sorted = checkLabels(family, labels);
    const key = JSON.stringify(sorted);
    const series = family.series.get(key) ?? this.#createSeries(family, key, sorted, buckets);
    series.ownerCount++;
    let isDisposed = false;
    const use = (): CustomSeries => {
      if (isDisposed) throw familyGone();
      return series.values;
    };
    return {
      increment: (value) => use().increment(value),
      set: (value) => use().set(value),
      observe: (value) => use().observe(value),
      value: () => use().value(),
      [Symbol.dispose]: () => {
        if (isDisposed) return;
        isDisposed = true;
        onDispose();
        if (--series.ownerCount > 0) return;
        family.series.delete(key);
        this.#seriesCount--;
      },
    };
  }

  #createSeries(
    family: SharedFamily,
    key: string,
    sorted: readonly (readonly [string, string])[],
    buckets: readonly number[] = [],
  ): SharedSeries {
    if (this.#seriesCount >= SERIES_MAX) {
      throw new ServerError(
        "UNAVAILABLE",
        `cannot create a metric of '${family.name}': models have ${SERIES_MAX} metrics already`,
      );
    }
    const series = {
      labels: Object.fromEntries(sorted),
      values: createSeries(family.kind, buckets.filter((bound) => bound !== Infinity)),
      ownerCount: 0,
    };
    family.series.set(key, series);
    this.#seriesCount++;
    return series;
  }
}

function familyGone(): ServerError {
  return new ServerError(
    "INTERNAL",
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The " +
      "'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted.",
  );
}
