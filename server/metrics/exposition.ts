import type { MetricsSnapshot } from "../core/metrics_snapshot.ts";
import type { ChildSnapshot, VersionSnapshot } from "../core/statistics.ts";
import {
  CACHE_FAMILIES,
  VERSION_CACHE_FAMILIES,
  VERSION_CACHE_SUMMARY_FAMILIES,
} from "./cache_families.ts";
import { customFamily } from "./custom_families.ts";
import { CPU_FAMILIES, type CpuSample } from "./cpu_metrics.ts";
import {
  GPU_FAMILIES,
  type GpuSample,
  type MemoryPoolSample,
  PINNED_MEMORY_FAMILIES,
} from "./gpu_metrics.ts";
import {
  type Family,
  HISTOGRAM_FAMILIES,
  type Sample,
  SUMMARY_FAMILIES,
  VERSION_FAMILIES,
} from "./families.ts";

/** What is printed beyond the plain counters. */
export interface ExpositionOptions {
  /** False with `--metrics-config=counter_latencies=false`: the other counters go on. */
  readonly counterLatencies: boolean;
  /** Undefined = no CPU gauges. */
  readonly cpu: CpuSample | undefined;
  /** Absent or empty = no families of GPUs. */
  readonly gpus?: readonly GpuSample[] | undefined;
  /** Shown where there are GPUs. */
  readonly pinnedMemory?: MemoryPoolSample | undefined;
}

type Labels = Readonly<Record<string, string>>;

/** Everything counted, in the Prometheus text format (observability.md §1). */
export function formatMetrics(
  snapshot: MetricsSnapshot,
  options: ExpositionOptions = { counterLatencies: true, cpu: undefined },
): string {
  const { versions, cache } = snapshot;
  const lines: string[] = [];
  const families = [...VERSION_FAMILIES, ...optionalFamilies(versions)];
  for (const family of families) {
    if (family.isLatency && !options.counterLatencies) continue;
    pushHead(lines, family);
    for (const version of versions) {
      for (const child of childrenOf(version, family)) {
        const labels = versionLabels(child);
        for (const sample of family.samples(child)) pushSample(lines, family.name, sample, labels);
      }
    }
  }
  if (cache !== undefined) {
    for (const family of CACHE_FAMILIES) {
      pushHead(lines, family);
      for (const sample of family.samples(cache)) pushSample(lines, family.name, sample, {});
    }
  }
  if (options.cpu !== undefined) {
    for (const family of CPU_FAMILIES) {
      pushHead(lines, family);
      for (const sample of family.samples(options.cpu)) pushSample(lines, family.name, sample, {});
    }
  }
  for (const family of options.gpus?.length ? GPU_FAMILIES : []) {
    pushHead(lines, family);
    for (const sample of family.samples(options.gpus!)) pushSample(lines, family.name, sample, {});
  }
  const pool = options.gpus?.length ? options.pinnedMemory : undefined;
  for (const family of pool === undefined ? [] : PINNED_MEMORY_FAMILIES) {
    pushHead(lines, family);
    for (const sample of family.samples(pool!)) pushSample(lines, family.name, sample, {});
  }
  for (const custom of snapshot.custom ?? []) {
    const family = customFamily(custom);
    pushHead(lines, family);
    for (const series of custom.series) {
      for (const sample of family.samples(series)) {
        pushSample(lines, family.name, sample, series.labels);
      }
    }
  }
  return lines.join("");
}

function optionalFamilies(
  versions: readonly VersionSnapshot[],
): readonly Family<VersionSnapshot>[] {
  const isCached = versions.some((version) => version.cache !== undefined);
  const hasSummaries = versions.some((version) => version.summaries !== undefined);
  return [
    ...(isCached ? VERSION_CACHE_FAMILIES : []),
    ...(versions.some((version) => version.firstResponse !== undefined) ? HISTOGRAM_FAMILIES : []),
    // With the cache there may be no summary of requests at all.
    ...SUMMARY_FAMILIES.filter(({ samples }) => versions.some((each) => samples(each).length > 0)),
    ...(hasSummaries && isCached ? VERSION_CACHE_SUMMARY_FAMILIES : []),
  ];
}

/** Versions on GPUs have a child for each of them, and one for what ran on none (observability.md §1.1). */
function childrenOf(
  version: VersionSnapshot,
  { isPerInstance }: Family<VersionSnapshot>,
): readonly (VersionSnapshot & ChildSnapshot)[] {
  const { children } = version;
  if (children === undefined || isPerInstance !== true) return [version];
  return children.map((child) => ({ ...version, ...child }));
}

function versionLabels(child: VersionSnapshot & ChildSnapshot): Labels {
  const { model, namespace, version, tags, gpuUuid } = child;
  const labels: Record<string, string> = { model, version: String(version) };
  if (gpuUuid !== undefined) labels["gpu_uuid"] = gpuUuid;
  if (namespace !== undefined) labels["namespace"] = namespace;
  for (const [key, value] of Object.entries(tags)) labels[labelName(key)] = value;
  return labels;
}

/** Label names have letters, digits and underscores only; a tag is marked by the underscore in front. */
function labelName(tag: string): string {
  return `_${tag.replace(/[^A-Za-z0-9_]/g, "_")}`;
}

function pushHead(lines: string[], { name, help, type }: Family<never>): void {
  lines.push(`# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`);
}

/** Labels in the order of their names; those that tell the samples of one child apart come last. */
function pushSample(lines: string[], name: string, sample: Sample, child: Labels): void {
  const { suffix = "", labels = {}, value } = sample;
  const { le, quantile, ...others } = labels;
  const sorted = Object.entries({ ...child, ...others }).sort(([a], [b]) => a < b ? -1 : 1);
  if (le !== undefined) sorted.push(["le", le]);
  if (quantile !== undefined) sorted.push(["quantile", quantile]);
  const texts = sorted.map(([key, text]) => `${key}="${escapeLabel(text)}"`);
  const list = texts.length === 0 ? "" : `{${texts.join(",")}}`;
  lines.push(`${name}${suffix}${list} ${formatValue(value)}\n`);
}

function escapeLabel(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

function formatValue(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  return String(value);
}
