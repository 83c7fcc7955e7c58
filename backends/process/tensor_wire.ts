import { isDatatype } from "../../proto/datatype.ts";
import { ServerError } from "../../proto/status.ts";
import { type Tensor, tensorByteSize } from "../../proto/tensor.ts";
import type { Arena, Slot } from "./arena.ts";
import type { PeerMemory } from "./peer_memory.ts";
import { FRAME_BYTE_SIZE_MAX, type FramePayload, type WireTensor } from "./frame.ts";

/** In a frame tensors begin at multiples of this, counted from the first byte behind the JSON. */
const INLINE_ALIGNMENT = 8;
const PADDING = new Uint8Array(INLINE_ALIGNMENT);
/** Tensors of at most so many bytes travel in the frame. */
const INLINE_BYTE_SIZE_MAX = 16 * 1024;
/** What all tensors of a frame may have, so that there is room for its JSON. */
const INLINE_SUM_MAX = FRAME_BYTE_SIZE_MAX / 2;
const RANK_MAX = 64;

/** A slot of the other side: segment and offset. */
export type PeerSlot = readonly [number, number];

/** The bytes behind the JSON of a frame that is being made. */
export class PayloadParts implements FramePayload {
  readonly parts: Uint8Array[] = [];
  byteSize = 0;

  /** Adds bytes; returns where they begin. */
  add(bytes: Uint8Array): number {
    const excess = this.byteSize % INLINE_ALIGNMENT;
    if (excess > 0) {
      this.parts.push(PADDING.subarray(excess));
      this.byteSize += INLINE_ALIGNMENT - excess;
    }
    const offset = this.byteSize;
    this.parts.push(bytes);
    this.byteSize += bytes.byteLength;
    return offset;
  }
}

/** Puts tensors in place for the other side. `arena` undefined = there is no shared memory. */
export class TensorWriter {
  readonly payload = new PayloadParts();
  readonly #arena: Arena | undefined;
  readonly #slots: Slot[] = [];

  constructor(arena: Arena | undefined) {
    this.#arena = arena;
  }

  /**
   * Places some tensors that belong together.
   * @throws ServerError INTERNAL when the memory is full; nothing of them is kept then.
   */
  writeAll(tensors: readonly Tensor[]): WireTensor[] {
    const slotCount = this.#slots.length;
    const mark = { parts: this.payload.parts.length, byteSize: this.payload.byteSize };
    try {
      return tensors.map((tensor) => this.#write(tensor));
    } catch (error) {
      this.#freeFrom(slotCount);
      this.payload.parts.length = mark.parts;
      this.payload.byteSize = mark.byteSize;
      throw error;
    }
  }

  /** The frame is not sent: nobody else would give the memory back. */
  discard(): void {
    this.#freeFrom(0);
  }

  #freeFrom(count: number): void {
    for (const { segment, offset } of this.#slots.splice(count)) this.#arena!.free(segment, offset);
  }

  /** Places bytes: `[segment, offset]`. @throws ServerError as `writeAll`. */
  #place(bytes: Uint8Array): PeerSlot {
    const { byteLength } = bytes;
    if (this.#arena === undefined || byteLength <= INLINE_BYTE_SIZE_MAX) {
      if (this.payload.byteSize + byteLength > INLINE_SUM_MAX) throw memoryFull(byteLength);
      return [-1, this.payload.add(bytes)];
    }
    const slot = this.#arena.tryAllocate(byteLength);
    if (slot === undefined) throw memoryFull(byteLength);
    this.#slots.push(slot);
    slot.bytes.set(bytes);
    return [slot.segment, slot.offset];
  }

  #write({ name, datatype, shape, data }: Tensor): WireTensor {
    const [segment, offset] = this.#place(data);
    return [name, datatype, shape, segment, offset, data.byteLength];
  }
}

/** Where the bytes of a frame's tensors are. */
export interface TensorPlace {
  readonly payload: Uint8Array;
  /** Absent = everything is in the frame. */
  readonly peer: PeerMemory | undefined;
}

/** Tensors by reference, and the slots of the other side they are in. */
export interface ReadTensors {
  readonly tensors: readonly Tensor[];
  readonly slots: readonly PeerSlot[];
}

/** Reads the tensors of a frame. @throws RangeError for what cannot be; the other side is broken then. */
export function readTensors(list: unknown, place: TensorPlace): ReadTensors {
  if (!Array.isArray(list)) throw new RangeError("Expected a list of tensors");
  const slots: PeerSlot[] = [];
  const tensors = list.map((wire: unknown) => readTensor(wire, { ...place, slots }));
  return { tensors, slots };
}

/** A view of bytes that a frame tells the place of. @throws RangeError */
export function readBytes(
  [segment, offset, byteSize]: readonly [unknown, unknown, unknown],
  { payload, peer, slots }: TensorPlace & { readonly slots: PeerSlot[] },
): Uint8Array {
  if (!isCount(offset) || !isCount(byteSize) || typeof segment !== "number") {
    throw new RangeError(`Tensor lies at ${segment}:${offset} with ${byteSize} bytes`);
  }
  if (segment === -1) {
    if (offset + byteSize > payload.length) {
      throw new RangeError(`Tensor of ${byteSize} bytes at ${offset} ends behind its frame`);
    }
    return payload.subarray(offset, offset + byteSize);
  }
  if (peer === undefined) throw new RangeError("Tensor lies in memory that is not shared");
  const view = peer.view(segment, offset, byteSize);
  slots.push([segment, offset]);
  return view;
}

function readTensor(
  wire: unknown,
  place: TensorPlace & { readonly slots: PeerSlot[] },
): Tensor {
  if (!Array.isArray(wire) || wire.length !== 6) throw new RangeError("Tensor has six parts");
  const [name, datatype, shape, segment, offset, byteSize] = wire as unknown[];
  if (typeof name !== "string" || typeof datatype !== "string" || !isDatatype(datatype)) {
    throw new RangeError(`Tensor ${String(name)} has datatype ${String(datatype)}`);
  }
  if (!Array.isArray(shape) || shape.length > RANK_MAX || !shape.every(isCount)) {
    throw new RangeError(`Tensor '${name}' has a shape that is none`);
  }
  const expected = tensorByteSize(datatype, shape, name);
  if (expected !== undefined && expected !== byteSize) {
    throw new RangeError(`Tensor '${name}' has ${byteSize} bytes, ${expected} expected`);
  }
  return { name, datatype, shape, data: readBytes([segment, offset, byteSize], place) };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function memoryFull(byteSize: number): ServerError {
  return new ServerError(
    "INTERNAL",
    `Failed to increase the shared memory pool size for ${byteSize} bytes: the process of the ` +
      `model has all that it may have (--backend-config=<backend>,shm-max-byte-size)`,
  );
}
