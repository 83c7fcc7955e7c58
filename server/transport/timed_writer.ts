import type { Connection, TransportContext } from "./connection.ts";

/** Writes to a connection, and knows when the peer takes nothing of it, or too little. */
export class TimedWriter {
  readonly #connection: Connection;
  readonly #context: Pick<TransportContext, "limits" | "now">;
  /** When the write under way began; 0 = there is none. */
  #startedAt = 0;
  /** When the peer last took something of it, and how much it took in all. */
  #takenAt = 0;
  #takenBytes = 0;

  constructor(connection: Connection, context: Pick<TransportContext, "limits" | "now">) {
    this.#connection = connection;
    this.#context = context;
  }

  /** The peer has taken nothing for too long, or drips. */
  get isStalled(): boolean {
    if (this.#startedAt === 0) return false;
    const { now, limits: { writeTimeoutMs, minBytesPerSecond } } = this.#context;
    const paidMs = this.#takenBytes * 1000 / minBytesPerSecond;
    return now - this.#takenAt > writeTimeoutMs || now - this.#startedAt > writeTimeoutMs + paidMs;
  }

  /** Writes all of `bytes`, however often the peer has to be waited for. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#startedAt = this.#takenAt = this.#context.now;
    let at = this.#takenBytes = 0;
    do {
      at += await this.#connection.write(at === 0 ? bytes : bytes.subarray(at));
      this.#takenAt = this.#context.now;
      this.#takenBytes = at;
    } while (at < bytes.length);
    this.#startedAt = 0;
  }
}
