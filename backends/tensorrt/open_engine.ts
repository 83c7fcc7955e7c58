import { ServerError } from "../../proto/status.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import { TensorRtError } from "../../ffi/tensorrt/error.ts";
import type { LoadedEngine } from "../../ffi/tensorrt/runtime.ts";
import type { DeviceSlot } from "./device_slots.ts";
import { planHint, readPlan } from "./plan_file.ts";

/**
 * Reads a plan and makes an engine of it.
 * @throws ServerError naming the file, TensorRT's reasons, and what can be done.
 */
export async function openEngine(
  { runtime }: DeviceSlot,
  path: string,
  dlaCore: number | undefined,
): Promise<LoadedEngine> {
  const plan = await readPlan(path);
  // The runtime is that of all models on the device.
  runtime.useDlaCore(dlaCore ?? 0);
  try {
    return await runtime.deserialize(plan);
  } catch (error) {
    throw planError(error, path, runtime.library.version.text);
  }
}

/** The error of a plan that cannot be loaded. */
export function planError(error: unknown, path: string, version: string): ServerError {
  if (error instanceof ServerError) return error;
  if (error instanceof TensorRtError) {
    const message = `unable to load '${path}': ${error.message}${planHint(error.message, version)}`;
    return new ServerError("INVALID_ARG", message, { cause: error });
  }
  if (error instanceof CudaError) {
    const message = `unable to load '${path}': ${error.message}`;
    return new ServerError("UNAVAILABLE", message, { cause: error });
  }
  return ServerError.from(error);
}
