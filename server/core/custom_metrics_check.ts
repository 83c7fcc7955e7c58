import type { MetricKind } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";

const NAME = /^[A-Za-z_:][A-Za-z0-9_:]*$/;
const LABEL = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** What the server's own families are called. */
const RESERVED = /^(?:nv_(?:inference|model|cache|gpu|cpu|energy|pinned)_|nereid_)/;
const HISTOGRAM_SUFFIXES = ["_bucket", "_sum", "_count"];
const NAME_LENGTH_MAX = 256;
const DESCRIPTION_LENGTH_MAX = 4096;
const LABELS_MAX = 64;
const LABEL_VALUE_LENGTH_MAX = 1024;
const BUCKETS_MAX = 200;

interface NamedFamily {
  readonly name: string;
  readonly kind: MetricKind;
}

/**
 * Checks what a new family is called.
 * @throws ServerError INVALID_ARG for a name that Prometheus does not take, or that would mix with another family.
 */
export function checkFamily(
  kind: MetricKind,
  name: string,
  description: string,
  families: ReadonlyMap<string, NamedFamily>,
): void {
  if (!NAME.test(name) || name.startsWith("__") || name.length > NAME_LENGTH_MAX) {
    throw invalid(
      `Invalid metric name ${quote(name)}: expected at most ${NAME_LENGTH_MAX} letters, digits, ` +
        `'_' and ':', no digit first, not '__' first`,
    );
  }
  if (RESERVED.test(name)) {
    throw invalid(
      `Family name already exists: '${name}' is among the names of the server's own metrics`,
    );
  }
  if (description.length > DESCRIPTION_LENGTH_MAX) {
    throw invalid(
      `the description of metric '${name}' has ${description.length} characters, expected at ` +
        `most ${DESCRIPTION_LENGTH_MAX}`,
    );
  }
  const clash = findClash(kind, name, families);
  if (clash === undefined) return;
  throw invalid(
    `Family name already exists: lines of '${name}' would mix with those of '${clash}'`,
  );
}

/** A histogram writes lines under further names. */
function findClash(
  kind: MetricKind,
  name: string,
  families: ReadonlyMap<string, NamedFamily>,
): string | undefined {
  for (const suffix of HISTOGRAM_SUFFIXES) {
    if (kind === "histogram" && families.has(name + suffix)) return name + suffix;
    if (!name.endsWith(suffix)) continue;
    const other = name.slice(0, -suffix.length);
    if (families.get(other)?.kind === "histogram") return other;
  }
  return undefined;
}

/** Checks the labels of a series; returns them sorted by name. @throws ServerError INVALID_ARG */
export function checkLabels(
  { name, kind }: NamedFamily,
  labels: Readonly<Record<string, string>>,
): [string, string][] {
  const entries = Object.entries(labels).sort(([a], [b]) => a < b ? -1 : 1);
  if (entries.length > LABELS_MAX) {
    throw invalid(`metric '${name}' has ${entries.length} labels, expected at most ${LABELS_MAX}`);
  }
  for (const [label, value] of entries) {
    const isReserved = label.startsWith("__") || (kind === "histogram" && label === "le");
    if (!LABEL.test(label) || isReserved || label.length > NAME_LENGTH_MAX) {
      throw invalid(
        `Invalid label name ${quote(label)} of metric '${name}': expected at most ` +
          `${NAME_LENGTH_MAX} letters, digits and '_', no digit first, not '__' first` +
          (kind === "histogram" ? ", not 'le'" : ""),
      );
    }
    if (value.length > LABEL_VALUE_LENGTH_MAX) {
      throw invalid(
        `label '${label}' of metric '${name}' has ${value.length} characters, expected at most ` +
          `${LABEL_VALUE_LENGTH_MAX}`,
      );
    }
  }
  return entries;
}

/** Checks the buckets of a new metric against the kind of its family. @throws ServerError INVALID_ARG */
export function checkBuckets(
  { name, kind }: NamedFamily,
  buckets: readonly number[] | undefined,
): void {
  if (kind !== "histogram") {
    if (buckets === undefined) return;
    throw invalid("Failed to create metric. Unexpected buckets found.");
  }
  if (buckets === undefined) throw invalid("Failed to create metric. Missing required buckets.");
  if (buckets.length > BUCKETS_MAX) {
    throw invalid(
      `metric '${name}' has ${buckets.length} buckets, expected at most ${BUCKETS_MAX}`,
    );
  }
  const index = buckets.findIndex((bound, at) => Number.isNaN(bound) || bound <= buckets[at - 1]!);
  if (index < 0) return;
  throw invalid(
    `buckets of metric '${name}' must be numbers in ascending order, got ${buckets[index]} after ` +
      `${buckets[index - 1] ?? "nothing"}`,
  );
}

function quote(name: string): string {
  return JSON.stringify(name.slice(0, 100));
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}
