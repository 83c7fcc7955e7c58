import type { MetricKind } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import type { CustomValue } from "./metrics_snapshot.ts";

/** The value behind a series, shared by all who asked for the same labels. */
export interface CustomSeries {
  /** @throws ServerError INVALID_ARG for a value that a counter cannot take, UNSUPPORTED for other kinds. */
  increment(value: number): void;
  /** @throws ServerError UNSUPPORTED */
  set(value: number): void;
  /** @throws ServerError UNSUPPORTED */
  observe(value: number): void;
  /** @throws ServerError UNSUPPORTED */
  value(): number;
  snapshot(): CustomValue;
}

/** A series that nobody has used yet. `buckets` as `checkBuckets` lets them pass. */
export function createSeries(kind: MetricKind, buckets: readonly number[]): CustomSeries {
  if (kind === "counter") return createCounter();
  return kind === "gauge" ? createGauge() : createHistogram(buckets);
}

function createCounter(): CustomSeries {
  let sum = 0;
  return {
    increment: (value) => {
      if (!(value >= 0)) {
        throw new ServerError(
          "INVALID_ARG",
          "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.",
        );
      }
      sum += value;
    },
    set: () => refuse("counter", "Set"),
    observe: () => refuse("counter", "Observe"),
    value: () => sum,
    snapshot: () => ({ value: sum }),
  };
}

function createGauge(): CustomSeries {
  let now = 0;
  return {
    increment: (value) => void (now += value),
    set: (value) => void (now = value),
    observe: () => refuse("gauge", "Observe"),
    value: () => now,
    snapshot: () => ({ value: now }),
  };
}

function createHistogram(upperBounds: readonly number[]): CustomSeries {
  // The last one counts what is above all bounds.
  const counts = new Float64Array(upperBounds.length + 1);
  let sum = 0;
  return {
    increment: () => refuse("histogram", "Increment"),
    set: () => refuse("histogram", "Set"),
    observe: (value) => {
      if (Number.isNaN(value)) {
        throw new ServerError("INVALID_ARG", "a histogram cannot observe NaN");
      }
      const index = upperBounds.findIndex((bound) => value <= bound);
      counts[index < 0 ? upperBounds.length : index]!++;
      sum += value;
    },
    value: () => refuse("histogram", "Value"),
    snapshot: () => {
      let count = 0;
      const buckets = upperBounds.map((upperBound, index) => ({
        upperBound,
        count: count += counts[index]!,
      }));
      return { buckets, count: count + counts[upperBounds.length]!, sum };
    },
  };
}

function refuse(kind: MetricKind, operation: string): never {
  throw new ServerError(
    "UNSUPPORTED",
    `TRITONSERVER_METRIC_KIND_${kind.toUpperCase()} does not support ${operation}`,
  );
}
