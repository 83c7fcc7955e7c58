/** What a pool is made with. */
export interface BufferPoolOptions {
  /** Bytes in use by all owners together; `Infinity` = no quota. Default 16 GiB. */
  readonly maxBytes?: number;
  /** Released bytes kept for reuse. Default 512 MiB. */
  readonly maxIdleBytes?: number;
  /** Fills released buffers with 0xDB, so that a use after release shows. */
  readonly poison?: boolean;
}

/** Buffers from this size on are pooled; smaller ones are cheaper to make than to keep. */
export const MIN_POOLED_BYTES = 32_768;
const MAX_POOLED_BYTES = 2 ** 28;
const CLASS_COUNT = 29;
const POISON_BYTE = 0xdb;

/** A buffer with one owner, who calls `release()` exactly once. */
export class PooledBuffer {
  /** The bytes asked for; the memory behind them may be larger. */
  bytes: Uint8Array;
  readonly #pool: BufferPool;
  #released = false;

  constructor(pool: BufferPool, bytes: Uint8Array) {
    this.#pool = pool;
    this.bytes = bytes;
  }

  /** Hands the memory back. Throws when called again: the bytes may have a new owner by then. */
  release(): void {
    if (this.#released) throw new TypeError("Buffer was released twice");
    this.#released = true;
    this.#pool.takeBack(this.bytes);
  }
}

/** Message buffers by size class (powers of two): a fresh large ArrayBuffer costs zeroing and garbage collection. */
export class BufferPool {
  readonly maxBytes: number;
  readonly #maxIdleBytes: number;
  readonly #poison: boolean;
  readonly #idle: ArrayBuffer[][] = Array.from({ length: CLASS_COUNT }, () => []);
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

  /** Buffers that were acquired and not released. */
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

  /** A buffer of exactly `byteSize` bytes with arbitrary content. Throws RangeError when there is no memory. */
  acquire(byteSize: number): PooledBuffer {
    const bytes = this.#allocate(byteSize);
    this.#outstandingCount++;
    return new PooledBuffer(this, bytes);
  }

  /** For `PooledBuffer.release` only. */
  takeBack(bytes: Uint8Array): void {
    this.#outstandingCount--;
    if (this.#poison) new Uint8Array(bytes.buffer).fill(POISON_BYTE);
    const capacity = bytes.buffer.byteLength;
    if (!isPooledSize(capacity) || this.#idleBytes + capacity > this.#maxIdleBytes) return;
    this.#idle[sizeClass(capacity)]!.push(bytes.buffer as ArrayBuffer);
    this.#idleBytes += capacity;
  }

  #allocate(byteSize: number): Uint8Array {
    if (byteSize < MIN_POOLED_BYTES || byteSize > MAX_POOLED_BYTES) return new Uint8Array(byteSize);
    const index = sizeClass(byteSize);
    const reused = this.#idle[index]!.pop();
    if (reused === undefined) return new Uint8Array(2 ** index).subarray(0, byteSize);
    this.#idleBytes -= reused.byteLength;
    return new Uint8Array(reused, 0, byteSize);
  }
}

/** Index of the smallest power of two that holds `byteSize`. */
function sizeClass(byteSize: number): number {
  return 32 - Math.clz32(byteSize - 1);
}

function isPooledSize(capacity: number): boolean {
  return capacity >= MIN_POOLED_BYTES && capacity <= MAX_POOLED_BYTES &&
    (capacity & (capacity - 1)) === 0;
}
