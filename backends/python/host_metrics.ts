import { ServerError } from "../../proto/status.ts";
import type { CustomMetric, CustomMetricFamily, MetricKind, ModelHost } from "../backend.ts";

const KINDS: readonly unknown[] = ["counter", "gauge", "histogram"];
/** Families and series that one process may hold. */
const HANDLE_COUNT_MAX = 100_000;

/** What a model asks of its metrics: the JSON of a call. */
export type MetricCall = Readonly<Record<string, unknown>>;

/** The metrics of one process, by numbers that it knows. */
export class HostMetrics {
  readonly #host: ModelHost;
  readonly #families = new Map<number, CustomMetricFamily>();
  readonly #metrics = new Map<number, CustomMetric>();
  #lastNumber = 0;

  constructor(host: ModelHost) {
    this.#host = host;
  }

  /** Makes a family; returns its number. @throws ServerError */
  openFamily({ kind, name, description }: MetricCall): number {
    const wanted = typeof kind === "string" ? kind.toLowerCase() : kind;
    if (!KINDS.includes(wanted) || typeof name !== "string" || typeof description !== "string") {
      throw new ServerError("INVALID_ARG", `Expected kind, name and description of a metric`);
    }
    const number = this.#nextNumber();
    this.#families.set(
      number,
      this.#host.openMetricFamily(wanted as MetricKind, name, description),
    );
    return number;
  }

  /** Makes a series; returns its number. @throws ServerError */
  openMetric({ family, labels, buckets }: MetricCall): number {
    const opened = this.#families.get(family as number);
    if (opened === undefined) throw deletedFamily();
    const number = this.#nextNumber();
    const metric = opened.metric(readLabels(labels), readBuckets(buckets));
    this.#metrics.set(number, metric);
    return number;
  }

  /** @throws ServerError */
  change(method: "increment" | "set" | "observe", { metric, x }: MetricCall): void {
    this.#find(metric)[method](readNumber(x));
  }

  /** @throws ServerError */
  value({ metric }: MetricCall): number {
    return this.#find(metric).value();
  }

  /** Nothing of the process refers to a family or series any more. */
  drop({ family, metric }: MetricCall): void {
    dispose(this.#families, family);
    dispose(this.#metrics, metric);
  }

  /** The process is gone. */
  close(): void {
    for (const number of [...this.#metrics.keys()]) dispose(this.#metrics, number);
    for (const number of [...this.#families.keys()]) dispose(this.#families, number);
  }

  #find(number: unknown): CustomMetric {
    const metric = this.#metrics.get(number as number);
    if (metric === undefined) throw deletedFamily();
    return metric;
  }

  #nextNumber(): number {
    if (this.#families.size + this.#metrics.size >= HANDLE_COUNT_MAX) {
      throw new ServerError(
        "UNAVAILABLE",
        `Failed to create metric. The model has ${HANDLE_COUNT_MAX} metrics already.`,
      );
    }
    return ++this.#lastNumber;
  }
}

function dispose(handles: Map<number, Disposable>, number: unknown): void {
  const handle = handles.get(number as number);
  if (handle === undefined) return;
  handles.delete(number as number);
  handle[Symbol.dispose]();
}

function deletedFamily(): ServerError {
  return new ServerError(
    "INTERNAL",
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The " +
      "'MetricFamily' object should be kept alive as long as its metrics are used.",
  );
}

function readLabels(labels: unknown): Record<string, string> {
  if (labels === undefined || labels === null) return {};
  const entries = typeof labels === "object" ? Object.entries(labels) : undefined;
  if (entries?.every(([, value]) => typeof value === "string") !== true) {
    throw new ServerError("INVALID_ARG", "Failed to create metric. Labels must be a dictionary.");
  }
  return Object.fromEntries(entries);
}

function readBuckets(buckets: unknown): number[] | undefined {
  if (buckets === undefined || buckets === null) return undefined;
  if (!Array.isArray(buckets)) {
    throw new ServerError("INVALID_ARG", "Failed to create metric. Buckets must be a list.");
  }
  return buckets.map(readNumber);
}

/** A number, or the name of one that JSON does not have. */
function readNumber(value: unknown): number {
  if (typeof value === "number") return value;
  if (value === "NaN" || value === "Infinity" || value === "-Infinity") return Number(value);
  throw new ServerError("INVALID_ARG", `Expected a number, got ${String(value)}`);
}
