import {
  CUDA_DRIVER_FILE_NAME,
  type CudaDriverDevice,
  type CudaDriverReport,
  readCudaDriver,
} from "../ffi/cuda/driver.ts";
import { LibraryNotFoundError } from "../ffi/library.ts";
import { isFfiAllowed } from "../ffi/permission.ts";
import { NvmlError } from "../ffi/nvml/error.ts";
import { Nvml, type NvmlReading } from "../ffi/nvml/nvml.ts";
import { NVML_FILE_NAME } from "../ffi/nvml/symbols.ts";
import type { Devices, GpuDevice, GpuList, GpuMemory, WebGpuList } from "./device_list.ts";

/** How the devices of this machine are looked for. */
export interface MachineOptions {
  /** `--min-supported-compute-capability`; GPUs below are not used. */
  readonly minComputeCapability: number;
  /** Looks for WebGPU adapters, in another process; called once. */
  readonly findWebGpuAdapters: () => Promise<WebGpuList>;
  /** Libraries in place of the driver's, for tests. */
  readonly nvmlPath?: string;
  readonly cudaDriverPath?: string;
}

/** What the NVIDIA driver of this machine is. */
export interface GpuDriver {
  /** Such as `555.42.01`; "" = unknown or none. */
  readonly version: string;
  /** Newest CUDA it can run. */
  readonly cudaVersion: string;
  /** Path of NVML and of the CUDA driver library, or why it could not be used. */
  readonly nvml: string | Error;
  readonly cuda: string | Error;
}

/** A reading of one GPU for the metrics; what could not be read is undefined. */
export interface GpuMetrics {
  readonly uuid: string;
  readonly utilization: number | undefined;
  readonly memoryTotalBytes: number | undefined;
  readonly memoryUsedBytes: number | undefined;
  readonly powerUsageWatts: number | undefined;
  readonly powerLimitWatts: number | undefined;
  readonly energyJoules: number | undefined;
}

interface Found {
  readonly nvml: Nvml | Error;
  readonly cuda: CudaDriverReport | Error;
}

/** The devices of this machine. Nothing is opened before it is asked for; then once. */
export class MachineDevices implements Devices, Disposable {
  readonly #options: MachineOptions;
  #found: Promise<Found> | undefined;
  #nvml: Nvml | undefined;
  #webGpu: Promise<WebGpuList> | undefined;
  #isDisposed = false;

  constructor(options: MachineOptions) {
    this.#options = options;
  }

  async gpus(): Promise<GpuList> {
    return listGpus(await this.#find(), this.#options.minComputeCapability);
  }

  async driver(): Promise<GpuDriver> {
    const { nvml, cuda } = await this.#find();
    const isNvml = nvml instanceof Nvml;
    return {
      version: isNvml ? nvml.driverVersion : "",
      cudaVersion: cuda instanceof Error ? (isNvml ? nvml.cudaVersion : "") : cuda.cudaVersion,
      nvml: isNvml ? nvml.path : nvml,
      cuda: cuda instanceof Error ? cuda : cuda.path,
    };
  }

  webGpuAdapters(): Promise<WebGpuList> {
    return this.#webGpu ??= this.#options.findWebGpuAdapters();
  }

  async gpuMemory(gpuId: number): Promise<GpuMemory | undefined> {
    const found = await this.#find();
    const { nvml } = found;
    if (this.#isDisposed || !(nvml instanceof Nvml)) return undefined;
    const { gpus } = listGpus(found, this.#options.minComputeCapability);
    const uuid = gpus.find(({ id }) => id === gpuId)?.uuid;
    const device = nvml.devices.find((each) => each.uuid === uuid);
    if (device === undefined) return undefined;
    const memory = await nvml.memory(device.index);
    return memory instanceof Error ? undefined : memory;
  }

  /** Reads every GPU that NVML knows; the calls run on the blocking pool. Never rejects. */
  async readGpus(): Promise<GpuMetrics[]> {
    const { nvml } = await this.#find();
    if (!(nvml instanceof Nvml)) return [];
    const readings: GpuMetrics[] = [];
    for (const { index, uuid } of nvml.devices) {
      if (this.#isDisposed) break;
      readings.push(toMetrics(uuid, await nvml.read(index)));
    }
    return readings;
  }

  #find(): Promise<Found> {
    return this.#found ??= this.#open();
  }

  async #open(): Promise<Found> {
    if (!isFfiAllowed()) {
      const error = new Error("Native libraries may not be opened here (--allow-ffi)");
      return { nvml: error, cuda: error };
    }
    const { nvmlPath, cudaDriverPath } = this.#options;
    const [nvml, cuda] = await Promise.all([
      Nvml.open(nvmlPath).catch(asError),
      readCudaDriver(cudaDriverPath).catch(asError),
    ]);
    if (nvml instanceof Nvml) {
      if (this.#isDisposed) nvml[Symbol.dispose]();
      else this.#nvml = nvml;
    }
    return { nvml, cuda };
  }

  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#nvml?.[Symbol.dispose]();
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

function listGpus({ nvml, cuda }: Found, minComputeCapability: number): GpuList {
  const known = nvml instanceof Nvml ? nvml.devices : [];
  if (!(cuda instanceof Error) && cuda.devices.length > 0) {
    const gpus = cuda.devices.map((device) => {
      const name = device.name || known.find(({ uuid }) => uuid === device.uuid)?.name || "";
      return judge({ ...device, name }, minComputeCapability);
    });
    return { gpus, minComputeCapability };
  }
  const reason = cuda instanceof Error
    ? driverReason(cuda, CUDA_DRIVER_FILE_NAME)
    : `the CUDA driver finds no GPU${visibleHint()}`;
  if (known.length === 0) return { gpus: [], reason, minComputeCapability };
  const gpus = known.map(({ index, name, uuid, computeCapability }) => ({
    id: index,
    name,
    uuid,
    pciBusId: "",
    computeCapability,
    memoryByteSize: 0,
    refusal: reason,
  }));
  return { gpus, minComputeCapability };
}

/** A GPU with why it is not used. */
function judge(device: CudaDriverDevice, minComputeCapability: number): GpuDevice {
  const { computeCapability } = device;
  if (computeCapability === "" || isAtLeast(computeCapability, minComputeCapability)) {
    return device;
  }
  const refusal = `its compute capability ${computeCapability} is below the minimum of ` +
    `${minComputeCapability} (--min-supported-compute-capability)`;
  return { ...device, refusal };
}

/** Compares by parts: `8.6` is below `10.0`, and as a number `8.10` would be below `8.9`. */
function isAtLeast(capability: string, minimum: number): boolean {
  const [major = 0, minor = 0] = capability.split(".").map(Number);
  const [minMajor = 0, minMinor = 0] = String(minimum).split(".").map(Number);
  return major > minMajor || (major === minMajor && minor >= minMinor);
}

function visibleHint(): string {
  try {
    const text = Deno.env.get("CUDA_VISIBLE_DEVICES");
    return text === undefined ? "" : ` (CUDA_VISIBLE_DEVICES is '${text}')`;
  } catch {
    return "";
  }
}

/** Why a library of the NVIDIA driver cannot be used, and what brings it. */
export function driverReason(error: Error, fileName: string = NVML_FILE_NAME): string {
  if (error instanceof LibraryNotFoundError) {
    const reason = error.attempts[0]?.reason ?? "";
    if (!/No such file/.test(reason)) return `${fileName} cannot be used: ${reason}`;
    return `no NVIDIA driver: ${fileName} cannot be opened ` +
      `(the NVIDIA driver of the system brings it, in containers the NVIDIA container toolkit)`;
  }
  return error.message;
}

function toMetrics(uuid: string, reading: NvmlReading): GpuMetrics {
  const { memory } = reading;
  const valueOf = (value: number | NvmlError) => value instanceof NvmlError ? undefined : value;
  return {
    uuid,
    utilization: valueOf(reading.utilization),
    memoryTotalBytes: memory instanceof NvmlError ? undefined : memory.totalBytes,
    memoryUsedBytes: memory instanceof NvmlError ? undefined : memory.usedBytes,
    powerUsageWatts: valueOf(reading.powerWatts),
    powerLimitWatts: valueOf(reading.powerLimitWatts),
    energyJoules: valueOf(reading.energyJoules),
  };
}
