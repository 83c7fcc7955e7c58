import type { MetricKind } from "../../backends/backend.ts";
import type { CacheSnapshot } from "./response_cache.ts";
import type { VersionSnapshot } from "./statistics.ts";

/** The value of a series; `buckets` count what is not above their bounds, without that of +Inf. */
export type CustomValue =
  | { readonly value: number }
  | {
    readonly buckets: readonly { readonly upperBound: number; readonly count: number }[];
    readonly count: number;
    readonly sum: number;
  };

/** A series of a model's own with its labels, sorted by name. */
export interface CustomSeriesSnapshot {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: CustomValue;
}

/** A family of metrics that models made; plain data. */
export interface CustomFamilySnapshot {
  readonly name: string;
  readonly kind: MetricKind;
  readonly description: string;
  readonly series: readonly CustomSeriesSnapshot[];
}

/** Everything counted, in one step; plain data. */
export interface MetricsSnapshot {
  readonly versions: readonly VersionSnapshot[];
  /** Of servers that have a response cache. */
  readonly cache?: CacheSnapshot;
  /** Metrics of models' own. */
  readonly custom?: readonly CustomFamilySnapshot[];
}
