import type { Family } from "./families.ts";

/** One look at a GPU; a reading that failed is undefined. */
export interface GpuReading {
  /** The label `gpu_uuid`. */
  readonly uuid: string;
  /** 0 to 1. */
  readonly utilization: number | undefined;
  readonly memoryTotalBytes: number | undefined;
  readonly memoryUsedBytes: number | undefined;
  readonly powerUsageWatts: number | undefined;
  readonly powerLimitWatts: number | undefined;
  /** Since some point of time before the server's start. */
  readonly energyJoules: number | undefined;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type Reading = Exclude<keyof GpuReading, "uuid">;

/** What is shown of a GPU: the newest readings, energy since the server's start. */
export type GpuSample = GpuReading;

function family(
  name: string,
  help: string,
  reading: Reading,
  type: "gauge" | "counter" = "gauge",
): Family<readonly GpuSample[]> {
  return {
    name,
    type,
    help,
    samples: (gpus) =>
      gpus.flatMap((gpu) => {
        const value = gpu[reading];
        return value === undefined ? [] : [{ labels: { gpu_uuid: gpu.uuid }, value }];
      }),
  };
}

/** Families of GPUs (observability.md §1.3). */
export const GPU_FAMILIES: readonly Family<readonly GpuSample[]>[] = [
  family("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0]", "utilization"),
  family("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "memoryTotalBytes"),
  family("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "memoryUsedBytes"),
  family("nv_gpu_power_usage", "GPU power usage, in watts", "powerUsageWatts"),
  family("nv_gpu_power_limit", "GPU power limit, in watts", "powerLimitWatts"),
  family(
    "nv_energy_consumption",
    "GPU energy consumption since the start of the server, in joules",
    "energyJoules",
    "counter",
  ),
];

/** A pool of memory now. */
export interface MemoryPoolSample {
  readonly totalBytes: number;
  readonly usedBytes: number;
}

/** Families of the pool of pinned memory (observability.md §1.3). */
export const PINNED_MEMORY_FAMILIES: readonly Family<MemoryPoolSample>[] = [
  {
    name: "nv_pinned_memory_pool_total_bytes",
    type: "gauge",
    help: "Pinned memory pool total memory, in bytes",
    samples: ({ totalBytes }) => [{ value: totalBytes }],
  },
  {
    name: "nv_pinned_memory_pool_used_bytes",
    type: "gauge",
    help: "Pinned memory pool used memory, in bytes",
    samples: ({ usedBytes }) => [{ value: usedBytes }],
  },
];

/** Where samples come from, and how often there is a new one. */
export interface GpuSamplerOptions {
  readonly intervalMs: number;
  /** Monotonic ms. */
  readonly now: () => number;
  readonly setTimer: (delayMs: number, callback: () => void) => { cancel(): void };
  /** Looks at all GPUs; none when there is no GPU, and then always. May take long, never rejects. */
  readonly read: () => Promise<readonly GpuReading[]>;
}

/** Readings of one kind that may fail in a row before they are left alone (observability.md §1.3). */
const MAX_FAILURES = 3;
/** A driver that hangs must not keep an answer back for longer. */
const MAX_WAIT_MS = 1000;

const READINGS: readonly Reading[] = [
  "utilization",
  "memoryTotalBytes",
  "memoryUsedBytes",
  "powerUsageWatts",
  "powerLimitWatts",
  "energyJoules",
];

/** Samples GPUs when somebody asks, at most once per interval, and once at the start, where energy counts from. */
export class GpuSampler {
  readonly #options: GpuSamplerOptions;
  /** By GPU and reading: how often it failed in a row. */
  readonly #failures = new Map<string, number>();
  readonly #startEnergy = new Map<string, number>();
  #readingMs = -Infinity;
  #reading: Promise<void> | undefined;
  #samples: readonly GpuSample[] = [];

  constructor(options: GpuSamplerOptions) {
    this.#options = options;
  }

  /** The newest samples, one per GPU; after a second those from before. Never rejects. */
  async sample(): Promise<readonly GpuSample[]> {
    const { now, intervalMs, setTimer } = this.#options;
    if (this.#reading === undefined && now() - this.#readingMs >= intervalMs) {
      this.#readingMs = now();
      this.#reading = this.#read().finally(() => this.#reading = undefined);
    }
    const reading = this.#reading;
    if (reading === undefined) return this.#samples;
    const { promise: waited, resolve } = Promise.withResolvers<void>();
    const timer = setTimer(MAX_WAIT_MS, resolve);
    await Promise.race([reading, waited]);
    timer.cancel();
    return this.#samples;
  }

  async #read(): Promise<void> {
    const readings = await this.#options.read();
    this.#samples = readings.map((reading) => this.#toSample(reading));
  }

  #toSample(reading: GpuReading): GpuSample {
    const sample: Mutable<GpuSample> = { ...reading };
    for (const kind of READINGS) sample[kind] = this.#filter(reading, kind);
    const { energyJoules } = sample;
    if (energyJoules === undefined) return sample;
    const start = this.#startEnergy.get(reading.uuid) ?? energyJoules;
    // The driver counts from its own start: after a reload of it from 0 again.
    const begin = Math.min(start, energyJoules);
    this.#startEnergy.set(reading.uuid, begin);
    return { ...sample, energyJoules: energyJoules - begin };
  }

  /** The value, or undefined when it failed now or too often. */
  #filter(reading: GpuReading, kind: Reading): number | undefined {
    const key = `${reading.uuid} ${kind}`;
    const failures = this.#failures.get(key) ?? 0;
    if (failures >= MAX_FAILURES) return undefined;
    const value = reading[kind];
    this.#failures.set(key, value === undefined ? failures + 1 : 0);
    return value;
  }
}
