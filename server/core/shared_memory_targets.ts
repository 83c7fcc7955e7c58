import type { OutputTarget, OutputTargets } from "../../backends/backend.ts";
import type { SharedMemoryReference } from "../../proto/infer.ts";
import type { ClientMemory } from "./client_memory.ts";
import type { RegisteredRegion } from "./shared_memory.ts";

/** A part of a region that a request reads or writes. */
export interface RegionPart {
  readonly region: RegisteredRegion;
  readonly reference: SharedMemoryReference;
}

/** What a request does with regions. */
export interface RegionUse {
  readonly inputs: readonly RegionPart[];
  /** By the names of the outputs. */
  readonly outputs: ReadonlyMap<string, RegionPart>;
  /** Shows a part in memory of this machine; undefined = it is elsewhere. @throws ServerError naming the region */
  readonly view: (part: RegionPart) => Uint8Array | undefined;
  /** Copies the first bytes of a part to this machine. */
  readonly copy: (part: RegionPart, byteSize: number) => Uint8Array;
}

/**
 * The outputs that instances may write to their regions themselves. Left out is what overlaps an input or another
 * output: it is written when the model is done, as if nobody had read or written there meanwhile.
 */
export function findTargets(use: RegionUse, memory: ClientMemory): OutputTargets | undefined {
  let targets: Map<string, OutputTarget> | undefined;
  for (const [name, part] of use.outputs) {
    const target = openTarget(part, { use, memory });
    if (target === undefined) continue;
    const range = rangeOf(part);
    const isAlone = use.inputs.every((input) => !overlaps(rangeOf(input), range)) &&
      [...use.outputs.values()].every((each) => each === part || !overlaps(rangeOf(each), range));
    if (isAlone) (targets ??= new Map()).set(name, target);
  }
  return targets;
}

function openTarget(
  part: RegionPart,
  { use, memory }: { readonly use: RegionUse; readonly memory: ClientMemory },
): OutputTarget | undefined {
  const { region, reference: { offset, byteSize } } = part;
  if (byteSize === 0) return undefined;
  const place = region.memory.place?.(offset, byteSize);
  if (place !== undefined) {
    if (!memory.cudaDeviceIds.has(place.deviceId)) return undefined;
    return { byteSize, place, read: (size) => use.copy(part, size) };
  }
  const bytes = memory.host ? use.view(part) : undefined;
  return bytes === undefined ? undefined : { byteSize, bytes };
}

/** Bytes from `start` to before `end` in memory of a name of its own. */
interface ByteRange {
  readonly memory: string;
  readonly start: number;
  readonly end: number;
}

/** Two regions may show the same memory. */
function rangeOf({ region, reference: { offset, byteSize } }: RegionPart): ByteRange {
  const { description } = region;
  if (description.kind === "system") {
    const start = Number(description.offset) + offset;
    const memory = `system ${description.key.replace(/^\/+/, "")}`;
    return { memory, start, end: start + byteSize };
  }
  const place = region.memory.place?.(offset, byteSize);
  const start = place === undefined ? offset : Number(place.address);
  const memory = place === undefined ? `region ${description.name}` : `GPU ${place.deviceId}`;
  return { memory, start, end: start + byteSize };
}

function overlaps(one: ByteRange, other: ByteRange): boolean {
  return one.memory === other.memory && one.start < other.end && other.start < one.end;
}
