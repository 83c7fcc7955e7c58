import type { NativePointer } from "./handle.ts";

const textEncoder = new TextEncoder();

/** Alignment of the buffers we hand to native code: a cache line, and the widest vector registers. */
export const ALIGNMENT = 64;

/** `char*`: UTF-8 bytes with a terminating zero. */
export function cString(text: string): Uint8Array<ArrayBuffer> {
  // Into a block of its own: small typed arrays made otherwise may live on the JavaScript heap and move.
  const encoded = textEncoder.encode(text);
  const bytes = new Uint8Array(new ArrayBuffer(encoded.length + 1));
  bytes.set(encoded);
  return bytes;
}

/** Address of a buffer's first byte; 0n when it is empty. */
export function addressOf(buffer: BufferSource): bigint {
  // A small typed array may live on the JavaScript heap, where it moves, until its buffer is looked at.
  if (ArrayBuffer.isView(buffer) && buffer.buffer.byteLength === 0) return 0n;
  return addressOfPointer(Deno.UnsafePointer.of(buffer as Uint8Array<ArrayBuffer>));
}

/** Numeric address of a pointer. */
export function addressOfPointer(pointer: Deno.PointerValue): bigint {
  return pointer === null ? 0n : Deno.UnsafePointer.value(pointer);
}

/** Pointer to a numeric address; null for 0. */
export function pointerAt(address: bigint): Deno.PointerValue {
  return Deno.UnsafePointer.create(address);
}

/** The text a `char*` points to; "" for null. */
export function readCString(pointer: Deno.PointerValue): string {
  return pointer === null ? "" : Deno.UnsafePointerView.getCString(pointer);
}

/** A view of native memory, without a copy. It must not be used after the memory was freed. */
export function viewMemory(pointer: NativePointer, byteLength: number): ArrayBuffer {
  return Deno.UnsafePointerView.getArrayBuffer(pointer, byteLength);
}

/** A copy of native memory. */
export function copyMemory(pointer: NativePointer, byteLength: number): Uint8Array<ArrayBuffer> {
  const copy = new Uint8Array(byteLength);
  Deno.UnsafePointerView.copyInto(pointer, copy);
  return copy;
}

/** Zeroed bytes whose address is a multiple of {@linkcode ALIGNMENT}; never empty, so that it has an address. */
export function allocateAligned(byteLength: number): Uint8Array<ArrayBuffer> {
  const block = new ArrayBuffer(Math.max(byteLength, 1) + ALIGNMENT - 1);
  const excess = Number(addressOf(block) % BigInt(ALIGNMENT));
  return new Uint8Array(block, excess === 0 ? 0 : ALIGNMENT - excess, Math.max(byteLength, 1));
}

const inUse = new Set<readonly object[]>();

/**
 * Waits for a nonblocking call and keeps what it reads or writes from being collected until then: a variable that is
 * not used behind the call may be dropped while native code still works on its memory.
 */
export async function whileHolding<Value>(
  objects: readonly object[],
  call: () => Promise<Value>,
): Promise<Value> {
  inUse.add(objects);
  try {
    return await call();
  } finally {
    inUse.delete(objects);
  }
}

/** Reusable out-parameters of pointer size, each read right after the call that wrote it. */
export class OutParameter {
  readonly cell: BigUint64Array<ArrayBuffer> = new BigUint64Array(new ArrayBuffer(8));

  get address(): bigint {
    return this.cell[0] ?? 0n;
  }

  /** The value as a count or size. */
  get size(): number {
    return Number(this.address);
  }

  get pointer(): Deno.PointerValue {
    return Deno.UnsafePointer.create(this.address);
  }
}

/** `const char* const[]` that keeps its strings alive as long as it is. */
export class CStringArray {
  readonly array: BigUint64Array<ArrayBuffer>;
  readonly length: number;
  /** Native code reads these through `array` only; the reference keeps them from being collected. */
  readonly strings: readonly Uint8Array<ArrayBuffer>[];

  constructor(texts: readonly string[]) {
    this.strings = texts.map(cString);
    this.length = texts.length;
    this.array = new BigUint64Array(new ArrayBuffer(8 * Math.max(texts.length, 1)));
    this.strings.forEach((text, index) => this.array[index] = addressOf(text));
  }
}
