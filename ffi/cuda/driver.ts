import { openLibrary } from "../library.ts";
import { readCString } from "../memory.ts";
import { CudaError } from "./error.ts";

const DISCOVERY_SYMBOLS = {
  // CUresult cuInit(unsigned int flags)
  cuInit: { parameters: ["u32"], result: "i32", nonblocking: true },
  // CUresult cuDriverGetVersion(int* version)
  cuDriverGetVersion: { parameters: ["buffer"], result: "i32" },
  // CUresult cuDeviceGetCount(int* count)
  cuDeviceGetCount: { parameters: ["buffer"], result: "i32" },
  // CUresult cuDeviceGet(CUdevice* device, int ordinal)
  cuDeviceGet: { parameters: ["buffer", "i32"], result: "i32" },
  // CUresult cuDeviceGetName(char* name, int length, CUdevice device)
  cuDeviceGetName: { parameters: ["buffer", "i32", "i32"], result: "i32" },
  // CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device); the one of v2 names the instance of a divided GPU
  cuDeviceGetUuid: { parameters: ["buffer", "i32"], result: "i32" },
  cuDeviceGetUuid_v2: { parameters: ["buffer", "i32"], result: "i32", optional: true },
  // CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device)
  cuDeviceGetPCIBusId: { parameters: ["buffer", "i32", "i32"], result: "i32" },
  // CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device)
  cuDeviceGetAttribute: { parameters: ["buffer", "i32", "i32"], result: "i32" },
  // CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device)
  cuDeviceTotalMem_v2: { parameters: ["buffer", "i32"], result: "i32" },
  // CUresult cuGetErrorString(CUresult error, const char** text)
  cuGetErrorString: { parameters: ["i32", "buffer"], result: "i32", optional: true },
} as const satisfies Deno.ForeignLibraryInterface;

type DiscoveryCalls = Deno.StaticForeignLibraryInterface<typeof DISCOVERY_SYMBOLS>;

/** The file that the driver brings. */
export const CUDA_DRIVER_FILE_NAME = "libcuda.so.1";

const NO_DEVICE = 100;
const CAPABILITY_MAJOR = 75;
const CAPABILITY_MINOR = 76;
const TEXT_LENGTH = 256;
/** More GPUs than this in one machine are a mistake. */
const MAX_DEVICES = 256;

/** A GPU as the CUDA driver counts it; what could not be read is "" or 0. */
export interface CudaDriverDevice {
  /** What `cudaSetDevice` takes. */
  readonly id: number;
  readonly name: string;
  /** `GPU-…` or `MIG-…` as NVML writes it. */
  readonly uuid: string;
  readonly pciBusId: string;
  /** Such as `8.6`. */
  readonly computeCapability: string;
  readonly memoryByteSize: number;
}

/** What the CUDA driver tells. */
export interface CudaDriverReport {
  readonly path: string;
  /** Newest CUDA it can run, such as `12.4`. */
  readonly cudaVersion: string;
  readonly devices: readonly CudaDriverDevice[];
}

/**
 * Asks the CUDA driver for its GPUs, in the order and selection of `CUDA_VISIBLE_DEVICES`. No context is created.
 * @throws LibraryNotFoundError without a driver, CudaError when it cannot be initialised for another reason than that
 * there is no GPU.
 */
export async function readCudaDriver(
  path: string = CUDA_DRIVER_FILE_NAME,
): Promise<CudaDriverReport> {
  const library = openLibrary("the CUDA driver", {
    candidates: [{
      origin: path === CUDA_DRIVER_FILE_NAME ? "system library" : "given path",
      path,
    }],
    symbols: DISCOVERY_SYMBOLS,
  });
  const calls: DiscoveryCalls = library.symbols;
  const version = readInteger((out) => calls.cuDriverGetVersion(out));
  const cudaVersion = version === 0 ? "" : formatVersion(version);
  const report = { path: library.path, cudaVersion };
  const status = await calls.cuInit(0);
  if (status === NO_DEVICE) return { ...report, devices: [] };
  check(calls, "cuInit", status);
  const count = cell();
  check(calls, "cuDeviceGetCount", calls.cuDeviceGetCount(count));
  const devices: CudaDriverDevice[] = [];
  for (let id = 0; id < Math.min(count[0]!, MAX_DEVICES); id++) {
    const device = cell();
    check(calls, "cuDeviceGet", calls.cuDeviceGet(device, id));
    devices.push(describe(calls, id, device[0]!));
  }
  return { ...report, devices };
}

function describe(calls: DiscoveryCalls, id: number, device: number): CudaDriverDevice {
  const attribute = (number: number): number =>
    readInteger((out) => calls.cuDeviceGetAttribute(out, number, device));
  const major = attribute(CAPABILITY_MAJOR);
  const size = new BigUint64Array(new ArrayBuffer(8));
  const isKnown = calls.cuDeviceTotalMem_v2(size, device) === 0;
  return {
    id,
    name: readText((out) => calls.cuDeviceGetName(out, out.byteLength, device)),
    uuid: readUuid(calls, device),
    pciBusId: readText((out) => calls.cuDeviceGetPCIBusId(out, out.byteLength, device)),
    computeCapability: major === 0 ? "" : `${major}.${attribute(CAPABILITY_MINOR)}`,
    memoryByteSize: isKnown ? Number(size[0]) : 0,
  };
}

function readUuid(calls: DiscoveryCalls, device: number): string {
  const bytes = new Uint8Array(new ArrayBuffer(16));
  const read = calls.cuDeviceGetUuid_v2 ?? calls.cuDeviceGetUuid;
  if (read(bytes, device) !== 0) return "";
  const hex = bytes.toHex();
  const parts = [[0, 8], [8, 12], [12, 16], [16, 20], [20, 32]] as const;
  return `GPU-${parts.map(([begin, end]) => hex.slice(begin, end)).join("-")}`;
}

function readInteger(call: (out: Int32Array<ArrayBuffer>) => number): number {
  const out = cell();
  return call(out) === 0 ? out[0]! : 0;
}

function readText(call: (out: Uint8Array<ArrayBuffer>) => number): string {
  const out = new Uint8Array(new ArrayBuffer(TEXT_LENGTH));
  if (call(out) !== 0) return "";
  const end = out.indexOf(0);
  return new TextDecoder().decode(out.subarray(0, end < 0 ? out.length : end));
}

function check(calls: DiscoveryCalls, call: string, status: number): void {
  if (status === 0) return;
  const text = new BigUint64Array(new ArrayBuffer(8));
  const isKnown = calls.cuGetErrorString?.(status, text) === 0;
  const reason = isKnown ? readCString(Deno.UnsafePointer.create(text[0]!)) : "unknown error";
  throw new CudaError(`${call} failed with ${status}: ${reason}`, status);
}

/** `12040` → `12.4`. */
function formatVersion(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

// Into a block of its own: small typed arrays made otherwise may live on the JavaScript heap.
function cell(): Int32Array<ArrayBuffer> {
  return new Int32Array(new ArrayBuffer(4));
}
