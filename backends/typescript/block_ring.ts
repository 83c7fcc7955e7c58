/** Bytes in front of each block: its state, and alignment for what follows. */
const HEAD_BYTES = 64;
const FREE = 0;
const TAKEN = 1;

/**
 * Blocks of shared memory, allocated by one thread and freed by another one. Freeing is a store into the block itself,
 * so that it needs no message; room is won back in the order of allocation.
 */
export class BlockRing {
  /** Shared with the other thread. */
  readonly buffer: SharedArrayBuffer;
  readonly #states: Int32Array;
  readonly #taken: { readonly offset: number; readonly byteSize: number }[] = [];
  #oldest = 0;
  #head = 0;

  /** A ring of so many bytes, a multiple of 64. */
  constructor(byteSize: number) {
    this.buffer = new SharedArrayBuffer(byteSize);
    this.#states = new Int32Array(this.buffer);
  }

  /** Bytes of the ring. */
  get byteSize(): number {
    return this.buffer.byteLength;
  }

  /** Offset of a block of so many bytes, aligned to 64; undefined when there is no room now. */
  tryAllocate(byteSize: number): number | undefined {
    this.#reclaim();
    const needed = HEAD_BYTES + alignTo64(byteSize);
    const offset = this.#place(needed);
    if (offset === undefined) return undefined;
    this.#head = offset + needed;
    this.#taken.push({ offset, byteSize: needed });
    Atomics.store(this.#states, offset / 4, TAKEN);
    return offset + HEAD_BYTES;
  }

  #place(needed: number): number | undefined {
    const oldest = this.#taken[this.#oldest];
    if (oldest === undefined) return needed <= this.byteSize ? 0 : undefined;
    const tail = oldest.offset;
    if (this.#head > tail) {
      if (this.#head + needed <= this.byteSize) return this.#head;
      return needed <= tail ? 0 : undefined;
    }
    return this.#head + needed <= tail ? this.#head : undefined;
  }

  #reclaim(): void {
    const taken = this.#taken;
    while (this.#oldest < taken.length) {
      if (Atomics.load(this.#states, taken[this.#oldest]!.offset / 4) !== FREE) break;
      this.#oldest++;
    }
    if (this.#oldest === taken.length) {
      taken.length = 0;
      this.#oldest = 0;
    } else if (this.#oldest >= 64) {
      taken.splice(0, this.#oldest);
      this.#oldest = 0;
    }
  }
}

/** Gives a block back, from any thread. */
export function freeBlock(buffer: SharedArrayBuffer, offset: number): void {
  if (offset >= HEAD_BYTES) Atomics.store(new Int32Array(buffer, offset - HEAD_BYTES, 1), 0, FREE);
}

/** The next multiple of 64. */
export function alignTo64(byteSize: number): number {
  return Math.ceil(byteSize / 64) * 64;
}
