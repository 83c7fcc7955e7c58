import type { DevicePlace } from "../../proto/tensor.ts";
import type { OrtMemory } from "../../ffi/onnxruntime/mod.ts";
import type { ExecuteRequest } from "../backend.ts";

/** The memory of the GPU that a session runs on. */
export interface SessionMemory {
  readonly deviceId: number;
  readonly memory: OrtMemory;
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
  { inputs, targets }: ExecuteRequest,
): boolean {
  if (session === undefined) return false;
  const places = [...targets?.values() ?? []].map(({ place }) => place);
  for (const { place } of inputs) places.push(place);
  return places.some((place) => place !== undefined && isReachable(session, place));
}
