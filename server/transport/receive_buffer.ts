import type { BufferPool } from "./buffer_pool.ts";

/** Buffers up to this size are taken whole when their length is known. */
const EAGER_BYTES = 67_108_864;
const CHARGE_STEP_BYTES = 65_536;
/** First size of a buffer for an unknown length. */
const FIRST_BYTES = 32_768;
/** Up to this count a loop is faster than making the views for `set`. */
const LOOP_COPY_BYTES = 128;

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
 * Collects the bytes of one message or body in a pooled buffer, and owns it until `release`. The quota is charged as
 * bytes arrive, not as they are announced, so that a peer cannot use it up with promises.
 */
export class ReceiveBuffer {
  readonly #account: MemoryAccount;
  #memory: Uint8Array;
  #filled = 0;
  #charged: number;
  #released = false;
  /** Bytes that will come in all; -1 when unknown. */
  readonly #expected: number;

  private constructor(account: MemoryAccount, memory: Uint8Array, expected: number) {
    this.#account = account;
    this.#memory = memory;
    this.#expected = expected;
    this.#charged = Math.min(memory.length, CHARGE_STEP_BYTES);
  }

  /** Undefined when the quota or the memory does not suffice. `byteSize` is -1 when unknown. */
  static tryCreate(account: MemoryAccount, byteSize: number): ReceiveBuffer | undefined {
    const capacity = byteSize < 0 ? FIRST_BYTES : Math.min(byteSize, EAGER_BYTES);
    const charge = Math.min(capacity, CHARGE_STEP_BYTES);
    if (!account.tryCharge(charge)) return undefined;
    const memory = tryTake(account.pool, capacity);
    if (memory !== undefined) return new ReceiveBuffer(account, memory, byteSize);
    account.refund(charge);
    return undefined;
  }

  get filled(): number {
    return this.#filled;
  }

  /** The bytes received so far. */
  get bytes(): Uint8Array {
    const memory = this.#memory;
    return this.#filled === memory.length ? memory : memory.subarray(0, this.#filled);
  }

  /** Room for the next `wanted` bytes or fewer, at least one; undefined when the quota is used up. */
  reserve(wanted: number): Uint8Array | undefined {
    if (this.#filled === this.#memory.length && !this.#grow(wanted)) return undefined;
    const room = this.#memory.length - this.#filled;
    return this.#memory.subarray(this.#filled, this.#filled + Math.min(room, wanted));
  }

  /** Says that `count` bytes were written into the room of `reserve`; false when the quota is used up. */
  advance(count: number): boolean {
    this.#filled += count;
    if (this.#filled <= this.#charged) return true;
    const capacity = this.#memory.length;
    const step = Math.min(capacity, Math.max(this.#filled, 2 * this.#charged)) - this.#charged;
    if (!this.#account.tryCharge(step)) return false;
    this.#charged += step;
    return true;
  }

  /** Copies bytes in; false when the quota is used up. */
  append(source: Uint8Array, start: number, end: number): boolean {
    let at = start;
    while (at < end) {
      if (this.#filled === this.#memory.length && !this.#grow(end - at)) return false;
      const count = Math.min(end - at, this.#memory.length - this.#filled);
      this.#copy(source, at, count);
      if (!this.advance(count)) return false;
      at += count;
    }
    return true;
  }

  /** Hands the memory back. Throws when called again: it may have a new owner by then. */
  release(): void {
    if (this.#released) throw new TypeError("Buffer was released twice");
    this.#released = true;
    this.#account.pool.giveBack(this.#memory);
    this.#account.refund(this.#charged);
  }

  #copy(source: Uint8Array, start: number, count: number): void {
    const memory = this.#memory;
    const filled = this.#filled;
    if (count > LOOP_COPY_BYTES) {
      memory.set(source.subarray(start, start + count), filled);
    } else {
      for (let index = 0; index < count; index++) memory[filled + index] = source[start + index]!;
    }
  }

  #grow(wanted: number): boolean {
    const { pool } = this.#account;
    const size = this.#memory.length;
    const limit = this.#expected < 0 ? Infinity : this.#expected;
    const capacity = Math.min(limit, size + Math.max(size, Math.min(wanted, EAGER_BYTES)));
    const larger = tryTake(pool, capacity);
    if (larger === undefined) return false;
    larger.set(this.#memory);
    pool.giveBack(this.#memory);
    this.#memory = larger;
    return true;
  }
}

function tryTake(pool: BufferPool, byteSize: number): Uint8Array | undefined {
  try {
    return pool.take(byteSize);
  } catch {
    return undefined;
  }
}
