import { createDeviceTensor, type DevicePlace, type Tensor } from "../proto/tensor.ts";

/** Where a client wants an output: a part of a shared memory region. */
export type OutputTarget = HostTarget | DeviceTarget;

/** A part of a region in memory of this machine. */
export interface HostTarget {
  readonly byteSize: number;
  readonly bytes: Uint8Array;
  readonly place?: never;
}

/** A part of a region on a GPU. */
export interface DeviceTarget {
  readonly byteSize: number;
  readonly place: DevicePlace;
  readonly bytes?: never;
  /** Copies so many bytes from its start to this machine. */
  read(byteSize: number): Uint8Array;
}

/** Targets by the names of the outputs. */
export type OutputTargets = ReadonlyMap<string, OutputTarget>;

/** Which memory of clients an instance works on where it is. */
export interface ClientMemoryUse {
  /** It writes outputs to targets in memory of this machine. */
  readonly host: boolean;
  /** Inputs and targets may lie on this GPU; undefined = on none. */
  readonly cudaDeviceId: number | undefined;
}

/** An output whose bytes were written to the start of its target. */
export function placedOutput(
  target: OutputTarget,
  tensor: Pick<Tensor, "name" | "datatype" | "shape">,
  byteSize: number,
): Tensor {
  const { name, datatype, shape } = tensor;
  if (target.place === undefined) {
    return { name, datatype, shape, data: target.bytes.subarray(0, byteSize) };
  }
  const place = { ...target.place, byteSize };
  return createDeviceTensor({ name, datatype, shape }, place, () => target.read(byteSize));
}

/** Whether an output was written to its target. */
export function isPlaced(output: Tensor, target: OutputTarget): boolean {
  if (target.place === undefined) {
    if (output.place !== undefined) return false;
    const { data } = output;
    return data.buffer === target.bytes.buffer && data.byteOffset === target.bytes.byteOffset;
  }
  const { place } = output;
  return place?.address === target.place.address && place.deviceId === target.place.deviceId;
}
