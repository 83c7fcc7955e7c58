import { checkCuda } from "./error.ts";
import type { CudaRuntimeCalls } from "./symbols.ts";

const NO_DEVICE = 100;
const DRIVER_TOO_OLD = 35;

/** Number of GPUs; 0 when the driver finds none or is too old for the runtime. @throws CudaError */
export function countDevices(runtime: CudaRuntimeCalls): number {
  const count = new Int32Array(new ArrayBuffer(4));
  const status = runtime.cudaGetDeviceCount(count);
  if (status === NO_DEVICE || status === DRIVER_TOO_OLD) {
    runtime.cudaGetLastError();
    return 0;
  }
  checkCuda(runtime, "cudaGetDeviceCount", status);
  return count[0] ?? 0;
}
