import { readCString } from "../memory.ts";
import type { NvmlCalls } from "./symbols.ts";

/** Status of a reading that a GPU does not offer. */
export const NVML_NOT_SUPPORTED = 3;
/** Status when the driver has lost a GPU. */
export const NVML_GPU_IS_LOST = 15;

/** A call of NVML failed. */
export class NvmlError extends Error {
  override readonly name = "NvmlError";
  /** `nvmlReturn_t`, for instance 9 = the driver is not loaded. */
  readonly status: number;

  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}

/** @throws NvmlError with the library's text unless the status is success. */
export function checkNvml(calls: NvmlCalls, call: string, status: number): void {
  if (status === 0) return;
  const text = readCString(calls.nvmlErrorString(status)) || "unknown error";
  throw new NvmlError(`${call} failed with ${status}: ${text}`, status);
}
