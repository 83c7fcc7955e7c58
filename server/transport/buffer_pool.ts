/** What a pool is made with. */
export interface BufferPoolOptions {
  /** Bytes in use by all owners together; `Infinity` = no quota. Default 16 GiB. */
  readonly maxBytes?: number;
  /** Released bytes kept for reuse. Default 512 MiB. */
  readonly maxIdleBytes?: number;
  /** Fills released buffers with 0xDB, so that a use after release shows. */
  readonly poison?: boolean;
}

const MIN_POOLED_BYTES = 256;
const MAX_POOLED_BYTES = 2 ** 28;
const CLASS_COUNT = 29;
const POISON_BYTE = 0xdb;
/** The end of every buffer lies on a multiple of this. */
const END_ALIGNMENT = 64;
/** Memory from this size on is worth a call to free it; the garbage collector sees to what is smaller. */
const MIN_FREED_BYTES = 32_768;
/** Idle buffers that nobody needed for this time are freed. */
const TRIM_MS = 10_000;

/**
 * Message buffers by size class (powers of two): a fresh ArrayBuffer costs zeroing and garbage collection. A buffer has
 * one owner; the pool cannot tell who gives one back, so owners are objects that do it once (`ReceiveBuffer`).
 * Buffers are aligned at their end: the tensors of a request come last, behind text of any length, and a tensor that
 * lies on a multiple of its element size needs no copy before it can be used.
 */
export class BufferPool {
  readonly maxBytes: number;
  readonly #maxIdleBytes: number;
  readonly #poison: boolean;
  readonly #idle: ArrayBuffer[][] = Array.from({ length: CLASS_COUNT }, () => []);
  /** Fewest idle buffers of each class since the last trim: nobody needed those. */
  readonly #unused: number[] = new Array<number>(CLASS_COUNT).fill(0);
  #trimmedAt = 0;
  #idleBytes = 0;
  #chargedBytes = 0;
  #outstandingCount = 0;

  constructor(options: BufferPoolOptions = {}) {
    this.maxBytes = options.maxBytes ?? 2 ** 34;
    this.#maxIdleBytes = options.maxIdleBytes ?? 2 ** 29;
    this.#poison = options.poison ?? false;
  }

  /** Bytes charged to owners. */
  get chargedBytes(): number {
    return this.#chargedBytes;
  }

  /** Buffers that were taken and not given back. */
  get outstandingCount(): number {
    return this.#outstandingCount;
  }

  /** Bytes kept for reuse. */
  get idleBytes(): number {
    return this.#idleBytes;
  }

  /** Takes a part of the quota; false when too little is left. */
  tryCharge(byteSize: number): boolean {
    if (this.#chargedBytes + byteSize > this.maxBytes) return false;
    this.#chargedBytes += byteSize;
    return true;
  }

  refund(byteSize: number): void {
    this.#chargedBytes -= byteSize;
  }

  /** `byteSize` bytes with arbitrary content. Throws RangeError when there is no memory. */
  take(byteSize: number): Uint8Array {
    const bytes = this.#allocate(byteSize);
    this.#outstandingCount++;
    return bytes;
  }

  /** Takes what `take` gave out; nobody may use it any more. */
  giveBack(bytes: Uint8Array): void {
    this.#outstandingCount--;
    const memory = bytes.buffer as ArrayBuffer;
    if (this.#poison) new Uint8Array(memory).fill(POISON_BYTE);
    const capacity = memory.byteLength;
    if (capacity > MAX_POOLED_BYTES || this.#idleBytes + capacity > this.#maxIdleBytes) {
      return free(memory);
    }
    this.#idle[sizeClass(capacity)]!.push(memory);
    this.#idleBytes += capacity;
  }

  /** Frees the idle buffers that nobody needed for a while; whoever shares the pool calls it now and then. */
  trim(nowMs: number): void {
    if (nowMs - this.#trimmedAt < TRIM_MS) return;
    this.#trimmedAt = nowMs;
    for (let index = 0; index < CLASS_COUNT; index++) {
      const idle = this.#idle[index]!;
      for (const memory of idle.splice(0, this.#unused[index])) {
        this.#idleBytes -= memory.byteLength;
        free(memory);
      }
      this.#unused[index] = idle.length;
    }
  }

  #allocate(byteSize: number): Uint8Array {
    const offset = -byteSize & (END_ALIGNMENT - 1);
    const needed = offset + byteSize;
    if (needed > MAX_POOLED_BYTES) return new Uint8Array(new ArrayBuffer(needed), offset, byteSize);
    const index = sizeClass(Math.max(needed, MIN_POOLED_BYTES));
    const idle = this.#idle[index]!;
    const reused = idle.pop();
    if (reused === undefined) return new Uint8Array(new ArrayBuffer(2 ** index), offset, byteSize);
    this.#idleBytes -= reused.byteLength;
    if (idle.length < this.#unused[index]!) this.#unused[index] = idle.length;
    return new Uint8Array(reused, offset, byteSize);
  }
}

/** Gives memory back to the system at once: the garbage collector may not come by for a long time. */
function free(memory: ArrayBuffer): void {
  if (memory.byteLength >= MIN_FREED_BYTES) memory.transfer(0);
}

/** Index of the smallest power of two that holds `byteSize`. */
function sizeClass(byteSize: number): number {
  return 32 - Math.clz32(byteSize - 1);
}
