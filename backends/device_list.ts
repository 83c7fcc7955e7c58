/** Families of devices, in the order in which they are preferred. */
export type DeviceClass = "cuda" | "webgpu" | "cpu";

/** Names of the families for people. */
export const DEVICE_CLASS_NAMES: Readonly<Record<DeviceClass, string>> = {
  cuda: "CUDA",
  webgpu: "WebGPU",
  cpu: "CPU",
};

/** An NVIDIA GPU. */
export interface GpuDevice {
  /** As the CUDA runtime counts; what `gpus` of an instance group and `InstancePlacement.deviceId` name. */
  readonly id: number;
  /** "" = unknown, as all texts here. */
  readonly name: string;
  /** `GPU-…`; the label of its metrics. */
  readonly uuid: string;
  readonly pciBusId: string;
  /** Such as `8.6`. */
  readonly computeCapability: string;
  /** 0 = unknown. */
  readonly memoryByteSize: number;
  /** Why it is not used; absent = it is. */
  readonly refusal?: string;
}

/** The NVIDIA GPUs of this machine. */
export interface GpuList {
  readonly gpus: readonly GpuDevice[];
  /** Why there is none; absent when there is one, used or not. */
  readonly reason?: string;
  /** `--min-supported-compute-capability`. */
  readonly minComputeCapability: number;
}

/** A GPU behind WebGPU, of any maker. */
export interface WebGpuAdapter {
  /** Position among the adapters of its source. */
  readonly id: number;
  /** Who found it: Deno's own WebGPU, or the one inside the native ONNX Runtime. */
  readonly source: "navigator.gpu" | "onnxruntime";
  readonly name: string;
  readonly vendor: string;
  /** It runs on the CPU. */
  readonly isSoftware: boolean;
}

/** The WebGPU adapters of this machine. */
export interface WebGpuList {
  readonly adapters: readonly WebGpuAdapter[];
  /** Why a source has none, by source; absent for those that have one. */
  readonly reasons: Readonly<Partial<Record<WebGpuAdapter["source"], string>>>;
}

/** Memory of a GPU now, in bytes. */
export interface GpuMemory {
  readonly totalBytes: number;
  readonly usedBytes: number;
}

/** The devices of this machine, each kind looked for when it is first asked for. Nothing here ever rejects. */
export interface Devices {
  gpus(): Promise<GpuList>;
  webGpuAdapters(): Promise<WebGpuList>;
  /** Undefined when it cannot be told. */
  gpuMemory(gpuId: number): Promise<GpuMemory | undefined>;
}

/** Memory that the backends for GPUs share (`--pinned-memory-pool-byte-size`, `--cuda-memory-pool-byte-size`). */
export interface DeviceMemory {
  /** Pinned memory of the machine: taken before some is allocated, given back when it is freed. */
  readonly pinned: {
    readonly totalBytes: number;
    readonly usedBytes: number;
    /** False, and nothing is taken, when fewer bytes are left: go without pinned memory then. */
    take(byteSize: number): boolean;
    give(byteSize: number): void;
  };
  /** Bytes of freed memory of a GPU that may be kept for whoever needs some next. */
  poolByteSize(gpuId: number): number;
}

/** A kind of instance that a backend can make, or could with what is missing. */
export interface KindOffer {
  readonly kind: "KIND_CPU" | "KIND_GPU" | "KIND_MODEL";
  readonly device: DeviceClass;
  /** Devices of the family that may be used; `[0]` for the CPU. */
  readonly deviceIds: readonly number[];
  /** Why it cannot be had now, and what would help; absent = it can. */
  readonly refusal?: string;
}

/** The CPU as every backend that runs on it offers it. */
export const CPU_OFFER: KindOffer = { kind: "KIND_CPU", device: "cpu", deviceIds: [0] };

/** The usable NVIDIA GPUs as an offer of a backend that runs on them. */
export function offerGpus({ gpus, reason, minComputeCapability }: GpuList): KindOffer {
  const usable = gpus.filter(({ refusal }) => refusal === undefined);
  const offer = { kind: "KIND_GPU", device: "cuda" } as const;
  if (usable.length > 0) return { ...offer, deviceIds: usable.map(({ id }) => id) };
  const refused = gpus.map(({ id, refusal }) => `GPU ${id}: ${refusal}`).join(", ");
  const none = `no NVIDIA GPU of compute capability ${minComputeCapability} or more`;
  return { ...offer, deviceIds: [], refusal: refused || (reason ?? none) };
}
