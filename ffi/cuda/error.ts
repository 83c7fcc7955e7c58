import { readCString } from "../memory.ts";
import type { CudaRuntimeCalls } from "./symbols.ts";

/** A call of the CUDA runtime failed. */
export class CudaError extends Error {
  override readonly name = "CudaError";
  /** `cudaError_t`, for instance 1 = invalid value. */
  readonly status: number;

  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}

/** @throws CudaError with the runtime's text unless the status is success. */
export function checkCuda(runtime: CudaRuntimeCalls, call: string, status: number): void {
  if (status === 0) return;
  const name = readCString(runtime.cudaGetErrorName(status));
  const text = readCString(runtime.cudaGetErrorString(status));
  // The runtime would report it a second time, at a call that has nothing to do with it.
  runtime.cudaGetLastError();
  throw new CudaError(`${call} failed with ${name} (${status}): ${text}`, status);
}
