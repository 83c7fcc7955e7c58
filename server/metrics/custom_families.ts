import type { CustomFamilySnapshot, CustomSeriesSnapshot } from "../core/metrics_snapshot.ts";
import type { Family } from "./families.ts";

/** A family that models made (python-backend.md §A6), as one of the server's. */
export function customFamily(
  { name, kind, description }: CustomFamilySnapshot,
): Family<CustomSeriesSnapshot> {
  return {
    name,
    type: kind,
    help: description.replaceAll("\\", "\\\\").replaceAll("\n", "\\n"),
    samples: ({ value }) => {
      if ("value" in value) return [value];
      const { buckets, count, sum } = value;
      return [
        { suffix: "_count", value: count },
        { suffix: "_sum", value: sum },
        ...[...buckets, { upperBound: Infinity, count }].map((bucket) => ({
          suffix: "_bucket",
          labels: { le: formatBound(bucket.upperBound) },
          value: bucket.count,
        })),
      ];
    },
  };
}

function formatBound(bound: number): string {
  if (Number.isFinite(bound)) return String(bound);
  return bound > 0 ? "+Inf" : "-Inf";
}
