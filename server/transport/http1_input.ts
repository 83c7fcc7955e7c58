import type { Connection } from "./connection.ts";

const FIRST_BYTES = 8_192;

/**
 * Input side of an HTTP/1.1 connection: a growing read buffer with one read under way at a time, which may begin
 * while a handler works (that is how a disconnect is seen) and serves the next request later.
 */
export class Http1Input {
  readonly #connection: Connection;
  readonly #maxBytes: number;
  #buffer = new Uint8Array(FIRST_BYTES);
  #start = 0;
  #end = 0;
  #pending: Promise<number> | undefined;
  #ended = false;

  constructor(connection: Connection, maxBytes: number) {
    this.#connection = connection;
    this.#maxBytes = maxBytes;
  }

  get buffer(): Uint8Array {
    return this.#buffer;
  }

  /** First byte not consumed. */
  get start(): number {
    return this.#start;
  }

  get end(): number {
    return this.#end;
  }

  get available(): number {
    return this.#end - this.#start;
  }

  /** The peer has ended its output. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Puts bytes that were read before in front. */
  prepend(bytes: Uint8Array): void {
    if (bytes.length > this.#buffer.length) this.#buffer = new Uint8Array(bytes.length);
    this.#buffer.set(bytes);
    this.#end = bytes.length;
  }

  consume(count: number): void {
    this.#start += count;
    if (this.#start === this.#end && this.#pending === undefined) this.#start = this.#end = 0;
  }

  /** Whether a read can be started without moving anything: true unless pipelined requests fill the buffer. */
  get canWatch(): boolean {
    return !this.#ended && (this.#pending !== undefined || this.#end < this.#buffer.length);
  }

  /** Reads more; 0 at the end of input. Undefined when the buffer is at its limit. Rejects when the connection broke. */
  fill(): Promise<number> | undefined {
    if (this.#pending !== undefined) return this.#pending;
    if (this.#ended) return Promise.resolve(0);
    if (!this.#makeRoom()) return undefined;
    this.#pending = this.#connection.read(this.#buffer.subarray(this.#end)).then(
      (count) => {
        this.#pending = undefined;
        if (count === null) this.#ended = true;
        else this.#end += count;
        return count ?? 0;
      },
      (reason) => {
        this.#pending = undefined;
        this.#ended = true;
        throw reason;
      },
    );
    return this.#pending;
  }

  /** Fills the front of `target` with what is there, else straight from the socket; 0 at the end of input. */
  async readInto(target: Uint8Array): Promise<number> {
    if (this.available === 0 && this.#pending !== undefined) await this.#pending;
    const buffered = Math.min(this.available, target.length);
    if (buffered > 0) {
      target.set(this.#buffer.subarray(this.#start, this.#start + buffered));
      this.consume(buffered);
      return buffered;
    }
    if (this.#ended) return 0;
    const count = await this.#connection.read(target);
    if (count === null) this.#ended = true;
    return count ?? 0;
  }

  #makeRoom(): boolean {
    if (this.#start === this.#end) {
      this.#start = this.#end = 0;
    } else if (this.#end === this.#buffer.length) {
      if (this.#start > 0) {
        this.#buffer.copyWithin(0, this.#start, this.#end);
        this.#end -= this.#start;
        this.#start = 0;
      } else {
        if (this.#buffer.length >= this.#maxBytes) return false;
        const larger = new Uint8Array(Math.min(this.#maxBytes, 2 * this.#buffer.length));
        larger.set(this.#buffer.subarray(0, this.#end));
        this.#buffer = larger;
      }
    }
    return true;
  }
}
