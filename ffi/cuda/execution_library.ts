import type { CallRunner } from "../call_list.ts";
import { type LibraryCandidate, openLibrary } from "../library.ts";
import { addressOfPointer } from "../memory.ts";

const ADDRESSES = {
  // cudaError_t cudaSetDevice(int device)
  cudaSetDevice: { type: "pointer" },
  // cudaError_t cudaGetLastError()
  cudaGetLastError: { type: "pointer" },
  // cudaError_t cudaMalloc(void** address, size_t size)
  cudaMalloc: { type: "pointer" },
  // cudaError_t cudaFree(void* address)
  cudaFree: { type: "pointer" },
  // cudaError_t cudaHostAlloc(void** address, size_t size, unsigned int flags)
  cudaHostAlloc: { type: "pointer" },
  // cudaError_t cudaFreeHost(void* address)
  cudaFreeHost: { type: "pointer" },
  // cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest)
  cudaDeviceGetStreamPriorityRange: { type: "pointer" },
  // cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device)
  cudaDeviceGetAttribute: { type: "pointer" },
  // cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority)
  cudaStreamCreateWithPriority: { type: "pointer" },
  // cudaError_t cudaStreamSynchronize(cudaStream_t stream)
  cudaStreamSynchronize: { type: "pointer" },
  // cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
  cudaStreamWaitEvent: { type: "pointer" },
  // cudaError_t cudaStreamDestroy(cudaStream_t stream)
  cudaStreamDestroy: { type: "pointer" },
  // cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags)
  cudaEventCreateWithFlags: { type: "pointer" },
  // cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
  cudaEventRecord: { type: "pointer" },
  // cudaError_t cudaEventSynchronize(cudaEvent_t event)
  cudaEventSynchronize: { type: "pointer" },
  // cudaError_t cudaEventDestroy(cudaEvent_t event)
  cudaEventDestroy: { type: "pointer" },
  // cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t size, cudaMemcpyKind, cudaStream_t)
  cudaMemcpyAsync: { type: "pointer" },
  // cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
  cudaStreamBeginCapture: { type: "pointer" },
  // cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph)
  cudaStreamEndCapture: { type: "pointer" },
  // cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags)
  cudaGraphInstantiateWithFlags: { type: "pointer", optional: true },
  // cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
  cudaGraphLaunch: { type: "pointer" },
  // cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
  cudaGraphExecDestroy: { type: "pointer" },
  // cudaError_t cudaGraphDestroy(cudaGraph_t graph)
  cudaGraphDestroy: { type: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

const CALLS = {
  // cudaError_t cudaGetDeviceCount(int* count)
  countDevices: {
    name: "cudaGetDeviceCount",
    parameters: ["buffer"],
    result: "i32",
    nonblocking: true,
  },
  // cudaError_t cudaRuntimeGetVersion(int* version)
  cudaRuntimeGetVersion: { parameters: ["buffer"], result: "i32" },
  // const char* cudaGetErrorName(cudaError_t error)
  cudaGetErrorName: { parameters: ["i32"], result: "pointer" },
  // const char* cudaGetErrorString(cudaError_t error)
  cudaGetErrorString: { parameters: ["i32"], result: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Functions of the CUDA runtime that run in call lists. */
export type CudaFunction = keyof typeof ADDRESSES;

/** The CUDA runtime as executing backends use it. */
export interface CudaExecution {
  readonly path: string;
  readonly calls: Deno.StaticForeignLibraryInterface<typeof CALLS>;
  /** Addresses by name; 0n where this runtime has no such function. */
  readonly addresses: Readonly<Record<CudaFunction, bigint>>;
  readonly runner: CallRunner;
}

const NAMES = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"];

/**
 * Opens the CUDA runtime: the given file, or the system's.
 * @throws LibraryNotFoundError listing where it was looked for.
 */
export function openCudaExecution(
  runner: CallRunner,
  { path, folders = [] }: {
    readonly path?: string | undefined;
    /** Folders to look in before the system's places. */
    readonly folders?: readonly string[];
  } = {},
): CudaExecution {
  const candidates: LibraryCandidate[] = path === undefined
    ? [
      ...folders.flatMap((folder) =>
        NAMES.map((name) => ({ origin: "folder", path: `${folder}/${name}` }))
      ),
      ...NAMES.map((name) => ({ origin: "system", path: name })),
    ]
    : [{ origin: "setting 'cuda-library'", path }];
  const opened = openLibrary("the CUDA runtime", {
    candidates,
    symbols: { ...ADDRESSES, ...CALLS },
  });
  const { symbols } = opened;
  const addresses = Object.fromEntries(
    (Object.keys(ADDRESSES) as CudaFunction[])
      .map((name) => [name, addressOfPointer(symbols[name] as Deno.PointerValue)]),
  ) as Record<CudaFunction, bigint>;
  return { path: opened.path, calls: symbols, addresses, runner };
}
