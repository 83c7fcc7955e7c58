import type { CallRunner } from "../call_list.ts";
import {
  type LibraryAttempt,
  type LibraryCandidate,
  LibraryNotFoundError,
  openLibrary,
} from "../library.ts";
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

const DRIVER_TOO_OLD = 35;

const NAMES = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"];

/**
 * Opens the CUDA runtime: the given file, or the newest of the system's that the driver is new enough for.
 * @throws LibraryNotFoundError listing where it was looked for.
 */
export async function openCudaExecution(
  runner: CallRunner,
  { path }: { readonly path?: string | undefined } = {},
): Promise<CudaExecution> {
  const candidates: LibraryCandidate[] = path === undefined
    ? NAMES.map((name) => ({ origin: "system", path: name }))
    : [{ origin: "setting 'cuda-library'", path }];
  const attempts: LibraryAttempt[] = [];
  for (const candidate of candidates) {
    try {
      const opened = openRuntime(candidate, runner);
      const status = await opened.calls.countDevices(new Int32Array(new ArrayBuffer(4)));
      if (status !== DRIVER_TOO_OLD) return opened;
      attempts.push({
        ...candidate,
        reason: "it is newer than the NVIDIA driver, or there is none",
      });
    } catch (error) {
      if (!(error instanceof LibraryNotFoundError)) throw error;
      attempts.push(...error.attempts);
    }
  }
  throw new LibraryNotFoundError("the CUDA runtime", attempts);
}

function openRuntime(candidate: LibraryCandidate, runner: CallRunner): CudaExecution {
  const symbols = { ...ADDRESSES, ...CALLS };
  const opened = openLibrary("the CUDA runtime", { candidates: [candidate], symbols });
  const addresses = Object.fromEntries(
    (Object.keys(ADDRESSES) as CudaFunction[]).map((name) => [
      name,
      addressOfPointer(opened.symbols[name] as Deno.PointerValue),
    ]),
  ) as Record<CudaFunction, bigint>;
  return { path: opened.path, calls: opened.symbols, addresses, runner };
}
