import { joinParts } from "../../proto/join_parts.ts";

/** Bytes that may wait for the client before whoever writes is asked to wait; and the most that one write joins. */
const MAX_WAITING_BYTES = 256 * 1024;
const MAX_JOINED_BYTES = 64 * 1024;
/** What waits at most when nobody waits when asked to. */
const MAX_BYTES = 64 * 1024 * 1024;

/** A response body that is written while it is sent. Bounded by asking whoever writes to wait for the client. */
export class StreamedBody implements AsyncIterable<Uint8Array> {
  /** Called once when the client does not take the rest. */
  readonly #onGone: () => void;
  #parts: Uint8Array[] = [];
  #byteSize = 0;
  #isEnded = false;
  #isOverfull = false;
  #room: PromiseWithResolvers<void> | undefined;
  #wake: (() => void) | undefined;

  constructor(onGone: () => void) {
    this.#onGone = onGone;
  }

  /** Appends bytes; a promise asks to wait for the client. What comes after the end is dropped. */
  write(bytes: Uint8Array): Promise<void> | undefined {
    if (this.#isEnded) return undefined;
    if (this.#byteSize + bytes.length > MAX_BYTES && this.#parts.length > 0) {
      this.#isOverfull = true;
      this.giveUp();
      return undefined;
    }
    this.#parts.push(bytes);
    this.#byteSize += bytes.length;
    this.#wake?.();
    if (this.#byteSize < MAX_WAITING_BYTES) return undefined;
    return (this.#room ??= Promise.withResolvers()).promise;
  }

  /** Nothing more comes. */
  end(): void {
    this.#isEnded = true;
    this.#goOn();
    this.#wake?.();
  }

  /** Drops what was not sent: the client has gone, or takes nothing. */
  giveUp(): void {
    if (this.#isEnded && this.#parts.length === 0) return;
    this.#parts = [];
    this.#byteSize = 0;
    this.end();
    this.#onGone();
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array, undefined> {
    return {
      next: async () => {
        while (this.#parts.length === 0 && !this.#isEnded) {
          await new Promise<void>((resolve) => this.#wake = resolve);
        }
        // The client must not take what it got for the whole.
        if (this.#isOverfull) throw new Error(`More than ${MAX_BYTES} bytes wait for the client`);
        if (this.#parts.length === 0) return { done: true, value: undefined };
        return { done: false, value: this.#take() };
      },
      return: () => {
        this.giveUp();
        return Promise.resolve({ done: true, value: undefined });
      },
    };
  }

  /** What waits, joined as long as it is short. */
  #take(): Uint8Array {
    let count = 1;
    let byteSize = this.#parts[0]!.length;
    while (count < this.#parts.length) {
      byteSize += this.#parts[count]!.length;
      if (byteSize > MAX_JOINED_BYTES) break;
      count++;
    }
    const taken = this.#parts.splice(0, count);
    const bytes = taken.length === 1 ? taken[0]! : joinParts(taken);
    this.#byteSize -= bytes.length;
    if (this.#byteSize <= MAX_WAITING_BYTES / 2) this.#goOn();
    return bytes;
  }

  #goOn(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}
