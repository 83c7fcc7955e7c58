import { LibraryNotFoundError, openLibrary } from "../library.ts";

/** `cudaIpcMemHandle_t`, passed by value: 64 bytes. */
const IPC_HANDLE = { struct: ["u64", "u64", "u64", "u64", "u64", "u64", "u64", "u64"] } as const;

const RUNTIME_SYMBOLS = {
  // cudaError_t cudaGetDeviceCount(int* count)
  cudaGetDeviceCount: { parameters: ["buffer"], result: "i32" },
  // cudaError_t cudaSetDevice(int device)
  cudaSetDevice: { parameters: ["i32"], result: "i32" },
  // cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned int flags)
  cudaIpcOpenMemHandle: { parameters: ["buffer", IPC_HANDLE, "u32"], result: "i32" },
  // cudaError_t cudaIpcCloseMemHandle(void* address)
  cudaIpcCloseMemHandle: { parameters: ["pointer"], result: "i32" },
  // cudaError_t cudaMemcpy(void* target, const void* source, size_t size, enum cudaMemcpyKind kind)
  copyToHost: {
    name: "cudaMemcpy",
    parameters: ["buffer", "pointer", "usize", "i32"],
    result: "i32",
  },
  copyToDevice: {
    name: "cudaMemcpy",
    parameters: ["pointer", "buffer", "usize", "i32"],
    result: "i32",
  },
  // const char* cudaGetErrorName(cudaError_t error)
  cudaGetErrorName: { parameters: ["i32"], result: "pointer" },
  // const char* cudaGetErrorString(cudaError_t error)
  cudaGetErrorString: { parameters: ["i32"], result: "pointer" },
  // cudaError_t cudaGetLastError()
  cudaGetLastError: { parameters: [], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

const DRIVER_SYMBOLS = {
  // CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address)
  cuMemGetAddressRange_v2: { parameters: ["buffer", "buffer", "u64"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Functions of the CUDA runtime that are used here. */
export type CudaRuntimeCalls = Deno.StaticForeignLibraryInterface<typeof RUNTIME_SYMBOLS>;

/** The CUDA libraries of this machine. */
export interface CudaLibraries {
  readonly runtime: CudaRuntimeCalls;
  /** Functions of the driver. */
  readonly driver: Deno.StaticForeignLibraryInterface<typeof DRIVER_SYMBOLS>;
}

const RUNTIME_NAMES = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"];
const DRIVER_NAME = "libcuda.so.1";

/**
 * The CUDA runtimes of this machine, in the order in which they are worth a try: one that is newer than the driver can
 * be opened, but finds no device. Empty where there is no driver.
 */
export function* openCudaLibraries(): Generator<CudaLibraries> {
  const driver = tryOpen("the CUDA driver", DRIVER_NAME, DRIVER_SYMBOLS);
  if (driver === undefined) return;
  for (const name of RUNTIME_NAMES) {
    const runtime = tryOpen("the CUDA runtime", name, RUNTIME_SYMBOLS);
    if (runtime !== undefined) yield { runtime, driver };
  }
}

function tryOpen<const Symbols extends Deno.ForeignLibraryInterface>(
  what: string,
  path: string,
  symbols: Symbols,
) {
  try {
    return openLibrary(what, { candidates: [{ origin: "system", path }], symbols }).symbols;
  } catch (error) {
    if (error instanceof LibraryNotFoundError) return undefined;
    throw error;
  }
}
