import { type BufferPool, MIN_POOLED_BYTES, type PooledBuffer } from "./buffer_pool.ts";

/** Buffers up to this size are taken whole when their length is known. */
const EAGER_BYTES = 67_108_864;
const CHARGE_STEP_BYTES = 65_536;

/** Share of the memory quota that one connection may use. */
export class MemoryAccount {
  readonly pool: BufferPool;
  readonly #maxBytes: number;
  #usedBytes = 0;

  constructor(pool: BufferPool, maxBytes: number) {
    this.pool = pool;
    this.#maxBytes = maxBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  tryCharge(byteSize: number): boolean {
    if (this.#usedBytes + byteSize > this.#maxBytes) return false;
    if (!this.pool.tryCharge(byteSize)) return false;
    this.#usedBytes += byteSize;
    return true;
  }

  refund(byteSize: number): void {
    this.#usedBytes -= byteSize;
    this.pool.refund(byteSize);
  }
}

/**
 * Collects the bytes of one message or body in a pooled buffer. The quota is charged as bytes arrive, not as they are
 * announced, so that a peer cannot use it up with promises.
 */
export class ReceiveBuffer {
  readonly #account: MemoryAccount;
  #buffer: PooledBuffer;
  #filled = 0;
  #charged: number;
  /** Bytes that will come in all; -1 when unknown. */
  readonly #expected: number;

  private constructor(account: MemoryAccount, buffer: PooledBuffer, expected: number) {
    this.#account = account;
    this.#buffer = buffer;
    this.#expected = expected;
    this.#charged = Math.min(buffer.bytes.length, CHARGE_STEP_BYTES);
  }

  /** Undefined when the quota or the memory does not suffice. `byteSize` is -1 when unknown. */
  static tryCreate(account: MemoryAccount, byteSize: number): ReceiveBuffer | undefined {
    const capacity = byteSize < 0 ? MIN_POOLED_BYTES : Math.min(byteSize, EAGER_BYTES);
    const charge = Math.min(capacity, CHARGE_STEP_BYTES);
    if (!account.tryCharge(charge)) return undefined;
    const buffer = tryAcquire(account.pool, capacity);
    if (buffer === undefined) {
      account.refund(charge);
      return undefined;
    }
    return new ReceiveBuffer(account, buffer, byteSize);
  }

  get filled(): number {
    return this.#filled;
  }

  /** The bytes received so far. */
  get bytes(): Uint8Array {
    const bytes = this.#buffer.bytes;
    return this.#filled === bytes.length ? bytes : bytes.subarray(0, this.#filled);
  }

  /** Room for the next `wanted` bytes or fewer, at least one; undefined when the quota is used up. */
  reserve(wanted: number): Uint8Array | undefined {
    if (this.#filled === this.#buffer.bytes.length && !this.#grow(wanted)) return undefined;
    const room = this.#buffer.bytes.length - this.#filled;
    return this.#buffer.bytes.subarray(this.#filled, this.#filled + Math.min(room, wanted));
  }

  /** Says that `count` bytes were written into the room of `reserve`; false when the quota is used up. */
  advance(count: number): boolean {
    this.#filled += count;
    if (this.#filled <= this.#charged) return true;
    const capacity = this.#buffer.bytes.length;
    const step = Math.min(capacity, Math.max(this.#filled, 2 * this.#charged)) - this.#charged;
    if (!this.#account.tryCharge(step)) return false;
    this.#charged += step;
    return true;
  }

  /** Copies bytes in; false when the quota is used up. */
  append(source: Uint8Array, start: number, end: number): boolean {
    let at = start;
    while (at < end) {
      const room = this.reserve(end - at);
      if (room === undefined) return false;
      room.set(source.subarray(at, at + room.length));
      if (!this.advance(room.length)) return false;
      at += room.length;
    }
    return true;
  }

  release(): void {
    this.#buffer.release();
    this.#account.refund(this.#charged);
  }

  #grow(wanted: number): boolean {
    const size = this.#buffer.bytes.length;
    const limit = this.#expected < 0 ? Infinity : this.#expected;
    const capacity = Math.min(limit, size + Math.max(size, Math.min(wanted, EAGER_BYTES)));
    const larger = tryAcquire(this.#account.pool, capacity);
    if (larger === undefined) return false;
    larger.bytes.set(this.#buffer.bytes);
    this.#buffer.release();
    this.#buffer = larger;
    return true;
  }
}

function tryAcquire(pool: BufferPool, byteSize: number): PooledBuffer | undefined {
  try {
    return pool.acquire(byteSize);
  } catch {
    return undefined;
  }
}
