import type { DevicePlace } from "../../proto/tensor.ts";
import type { OrtMemory } from "../../ffi/onnxruntime/mod.ts";
import type { ExecuteRequest } from "../backend.ts";
import type { GpuCopies } from "./gpu_batch.ts";

/** The memory of the GPU that a session runs on. */
export interface SessionMemory {
  readonly deviceId: number;
  readonly memory: OrtMemory;
  /** How requests are joined there; undefined = they run one by one. */
  readonly copies: GpuCopies | undefined;
}

/** What the allocators of CUDA and of the runtime give; kernels may count on it. */
const ALIGNMENT = 256n;

/** Whether a session works on these bytes where they are. */
export function isReachable(session: SessionMemory | undefined, place: DevicePlace): boolean {
  return session?.deviceId === place.deviceId && place.address % ALIGNMENT === 0n;
}

/** Whether something of the request lies on the GPU of the session, or is to go there. */
export function usesDevice(
  session: SessionMemory | undefined,
  request: ExecuteRequest,
): boolean {
  return session !== undefined &&
    places(request).some((place) => place.deviceId === session.deviceId);
}

/** Whether something of it lies on that GPU where the session cannot work on it. */
export function needsMove(session: SessionMemory, request: ExecuteRequest): boolean {
  return places(request).some((place) =>
    place.deviceId === session.deviceId && !isReachable(session, place)
  );
}

function places({ inputs, targets }: ExecuteRequest): readonly DevicePlace[] {
  const found: DevicePlace[] = [];
  for (const { place } of inputs) if (place !== undefined) found.push(place);
  if (targets === undefined) return found;
  for (const { place } of targets.values()) if (place !== undefined) found.push(place);
  return found;
}
