import type { Family } from "./families.ts";

/** Load and memory of the machine; what could not be read is undefined. */
export interface CpuSample {
  /** 0 to 1, since the sample before. */
  readonly utilization: number | undefined;
  readonly memoryTotalBytes: number | undefined;
  readonly memoryUsedBytes: number | undefined;
}

function gauge(
  name: string,
  help: string,
  value: (sample: CpuSample) => number | undefined,
): Family<CpuSample> {
  return {
    name,
    type: "gauge",
    help,
    samples: (sample) => {
      const found = value(sample);
      return found === undefined ? [] : [{ value: found }];
    },
  };
}

/** Families of the machine (observability.md §1.3). */
export const CPU_FAMILIES: readonly Family<CpuSample>[] = [
  gauge(
    "nv_cpu_utilization",
    "CPU utilization rate [0.0 - 1.0]",
    ({ utilization }) => utilization,
  ),
  gauge(
    "nv_cpu_memory_total_bytes",
    "CPU total memory (RAM), in bytes",
    ({ memoryTotalBytes }) => memoryTotalBytes,
  ),
  gauge(
    "nv_cpu_memory_used_bytes",
    "CPU used memory (RAM), in bytes",
    ({ memoryUsedBytes }) => memoryUsedBytes,
  ),
];

/** Where samples come from, and how often there is a new one. */
export interface CpuSamplerOptions {
  readonly intervalMs: number;
  /** Monotonic ms. */
  readonly now: () => number;
  /** Reads a file of /proc. */
  readonly readText: (path: string) => Promise<string>;
}

/** Reads of one source that may fail in a row before it is left alone (observability.md §1.3). */
const MAX_FAILURES = 3;

interface CpuTimes {
  readonly busy: number;
  readonly total: number;
}

/** Samples /proc when somebody asks, at most once per interval. */
export class CpuSampler {
  readonly #options: CpuSamplerOptions;
  readonly #failures = { stat: 0, meminfo: 0 };
  #times: CpuTimes = { busy: 0, total: 0 };
  #sampledMs = -Infinity;
  #sample: CpuSample = {
    utilization: undefined,
    memoryTotalBytes: undefined,
    memoryUsedBytes: undefined,
  };

  constructor(options: CpuSamplerOptions) {
    this.#options = options;
  }

  /** The newest sample; never rejects. */
  async sample(): Promise<CpuSample> {
    const nowMs = this.#options.now();
    if (nowMs - this.#sampledMs < this.#options.intervalMs) return this.#sample;
    this.#sampledMs = nowMs;
    const stat = await this.#read("stat");
    const meminfo = await this.#read("meminfo");
    this.#sample = {
      utilization: this.#utilization(stat),
      ...parseMemory(meminfo),
    };
    return this.#sample;
  }

  async #read(source: "stat" | "meminfo"): Promise<string> {
    if (this.#failures[source] >= MAX_FAILURES) return "";
    try {
      const text = await this.#options.readText(`/proc/${source}`);
      this.#failures[source] = 0;
      return text;
    } catch {
      this.#failures[source]++;
      return "";
    }
  }

  #utilization(stat: string): number | undefined {
    const times = parseCpuTimes(stat);
    if (times === undefined) return undefined;
    const total = times.total - this.#times.total;
    const busy = times.busy - this.#times.busy;
    this.#times = times;
    return total <= 0 ? 0 : Math.min(1, Math.max(0, busy / total));
  }
}

/** The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, … in ticks. */
function parseCpuTimes(stat: string): CpuTimes | undefined {
  const line = /^cpu +([\d ]+)$/m.exec(stat);
  if (line === null) return undefined;
  const ticks = line[1]!.trim().split(/ +/).slice(0, 8).map(Number);
  const total = ticks.reduce((sum, value) => sum + value, 0);
  const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
  return { busy: total - idle, total };
}

function parseMemory(
  meminfo: string,
): Pick<CpuSample, "memoryTotalBytes" | "memoryUsedBytes"> {
  const bytesOf = (key: string): number | undefined => {
    const match = new RegExp(`^${key}: +(\\d+) kB$`, "m").exec(meminfo);
    return match === null ? undefined : Number(match[1]) * 1024;
  };
  const total = bytesOf("MemTotal");
  const available = bytesOf("MemAvailable");
  return {
    memoryTotalBytes: total,
    memoryUsedBytes: total === undefined || available === undefined ? undefined : total - available,
  };
}
