import type { NativePointer } from "../handle.ts";
import { OutParameter } from "../memory.ts";
import { checkNvml, NvmlError } from "./error.ts";
import { type NvmlCalls, openNvmlLibrary } from "./symbols.ts";

/** Length that the library asks for in its texts. */
const TEXT_LENGTH = 96;
/** More GPUs than this in one machine are a mistake. */
const MAX_DEVICES = 256;

/** What NVML tells of a GPU that does not change; what it does not know is "". */
export interface NvmlDevice {
  /** In PCI order, which need not be CUDA's. */
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  /** Such as `8.6`. */
  readonly computeCapability: string;
}

/** One look at a GPU. A reading that failed is the error, one that the GPU does not offer too. */
export interface NvmlReading {
  /** 0 to 1. */
  readonly utilization: number | NvmlError;
  /** Bytes in all and in use. */
  readonly memory: { readonly totalBytes: number; readonly usedBytes: number } | NvmlError;
  readonly powerWatts: number | NvmlError;
  readonly powerLimitWatts: number | NvmlError;
  /** Since the driver was loaded. */
  readonly energyJoules: number | NvmlError;
}

/** The opened and initialised library. */
export class Nvml implements Disposable {
  readonly path: string;
  readonly driverVersion: string;
  /** Newest CUDA the driver can run, such as `12.4`; "" = unknown. */
  readonly cudaVersion: string;
  readonly devices: readonly NvmlDevice[];
  readonly #calls: NvmlCalls;
  readonly #handles: readonly NativePointer[];
  #isDisposed = false;

  private constructor(calls: NvmlCalls, path: string) {
    this.path = path;
    this.#calls = calls;
    this.driverVersion = readText((buffer) =>
      calls.nvmlSystemGetDriverVersion(buffer, buffer.byteLength)
    );
    this.cudaVersion = readCudaVersion(calls);
    this.#handles = openHandles(calls);
    this.devices = this.#handles.map((handle, index) => describe(calls, handle, index));
  }

  /** @throws LibraryNotFoundError without a driver, NvmlError when it cannot be initialised. */
  static async open(path?: string): Promise<Nvml> {
    const { symbols, path: found } = openNvmlLibrary(path);
    checkNvml(symbols, "nvmlInit_v2", await symbols.nvmlInit_v2());
    try {
      return new Nvml(symbols, found);
    } catch (error) {
      symbols.nvmlShutdown();
      throw error;
    }
  }

  /** Reads a GPU by its position in `devices`; the calls run on the blocking pool. Never rejects for a bad reading. */
  async read(index: number): Promise<NvmlReading> {
    const calls = this.#calls;
    const handle = this.#handle(index);
    const milli = (call: "nvmlDeviceGetPowerUsage" | "nvmlDeviceGetEnforcedPowerLimit") =>
      readNumber(calls, call, cells32(1), (out) => calls[call](handle, out))
        .then((value) => value instanceof NvmlError ? value : value / 1000);
    return {
      utilization: await readNumber(
        calls,
        "nvmlDeviceGetUtilizationRates",
        // unsigned int gpu, memory: percent
        cells32(2),
        (out) => calls.nvmlDeviceGetUtilizationRates(handle, out),
      ).then((value) => value instanceof NvmlError ? value : value / 100),
      memory: await this.memory(index),
      powerWatts: await milli("nvmlDeviceGetPowerUsage"),
      powerLimitWatts: await milli("nvmlDeviceGetEnforcedPowerLimit"),
      energyJoules: await readNumber(
        calls,
        "nvmlDeviceGetTotalEnergyConsumption",
        cells64(1),
        (out) => calls.nvmlDeviceGetTotalEnergyConsumption(handle, out),
      ).then((value) => value instanceof NvmlError ? value : value / 1000),
    };
  }

  /** Memory of a GPU by its position in `devices`; the error instead of an exception. */
  async memory(index: number): Promise<NvmlReading["memory"]> {
    const calls = this.#calls;
    // unsigned long long total, free, used
    const sizes = cells64(3);
    const call = "nvmlDeviceGetMemoryInfo";
    const status = await calls[call](this.#handle(index), sizes);
    const error = failure(calls, call, status);
    return error ?? { totalBytes: Number(sizes[0]), usedBytes: Number(sizes[2]) };
  }

  #handle(index: number): NativePointer {
    if (this.#isDisposed) throw new TypeError("Cannot read a GPU: NVML was closed");
    const handle = this.#handles[index];
    if (handle === undefined) {
      throw new RangeError(`Cannot read GPU ${index}: NVML knows ${this.#handles.length}`);
    }
    return handle;
  }

  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#calls.nvmlShutdown();
  }
}

function openHandles(calls: NvmlCalls): NativePointer[] {
  const count = cells32(1);
  checkNvml(calls, "nvmlDeviceGetCount_v2", calls.nvmlDeviceGetCount_v2(count));
  const handles: NativePointer[] = [];
  const out = new OutParameter();
  for (let index = 0; index < Math.min(count[0]!, MAX_DEVICES); index++) {
    const status = calls.nvmlDeviceGetHandleByIndex_v2(index, out.cell);
    // A GPU that fell off the bus must not hide the others.
    if (status === 0 && out.pointer !== null) handles.push(out.pointer);
  }
  return handles;
}

function describe(calls: NvmlCalls, handle: NativePointer, index: number): NvmlDevice {
  const [major, minor] = [new Int32Array(1), new Int32Array(1)];
  const found = calls.nvmlDeviceGetCudaComputeCapability(handle, major, minor);
  return {
    index,
    uuid: readText((buffer) => calls.nvmlDeviceGetUUID(handle, buffer, buffer.byteLength)),
    name: readText((buffer) => calls.nvmlDeviceGetName(handle, buffer, buffer.byteLength)),
    computeCapability: found === 0 ? `${major[0]}.${minor[0]}` : "",
  };
}

function readCudaVersion(calls: NvmlCalls): string {
  const version = new Int32Array(1);
  if (calls.nvmlSystemGetCudaDriverVersion_v2(version) !== 0) return "";
  return formatCudaVersion(version[0]!);
}

/** `12040` → `12.4`. */
export function formatCudaVersion(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

function readText(call: (buffer: Uint8Array<ArrayBuffer>) => number): string {
  const buffer = new Uint8Array(TEXT_LENGTH);
  if (call(buffer) !== 0) return "";
  const end = buffer.indexOf(0);
  return new TextDecoder().decode(buffer.subarray(0, end < 0 ? buffer.length : end));
}

async function readNumber(
  calls: NvmlCalls,
  name: string,
  out: Uint32Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>,
  call: (out: BufferSource) => Promise<number>,
): Promise<number | NvmlError> {
  const error = failure(calls, name, await call(out));
  return error ?? Number(out[0]);
}

function failure(calls: NvmlCalls, call: string, status: number): NvmlError | undefined {
  try {
    checkNvml(calls, call, status);
    return undefined;
  } catch (error) {
    if (error instanceof NvmlError) return error;
    throw error;
  }
}

// Into blocks of their own: small typed arrays made otherwise may live on the JavaScript heap and move during a call.
function cells32(length: number): Uint32Array<ArrayBuffer> {
  return new Uint32Array(new ArrayBuffer(4 * length));
}

function cells64(length: number): BigUint64Array<ArrayBuffer> {
  return new BigUint64Array(new ArrayBuffer(8 * length));
}
