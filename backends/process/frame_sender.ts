import { encodeFrame, frameByteSizeBound, type FramePayload } from "./frame.ts";

/** What waits to be written: behind that, the other side does not read any more. */
const QUEUED_BYTE_SIZE_MAX = 1024 * 1024 * 1024;
const BUFFER_BYTE_SIZE = 64 * 1024;

/** The part of a connection that is written to. */
export interface ByteSink {
  write(bytes: Uint8Array): Promise<number>;
}

/**
 * Sends frames on one connection, in order. Those of one step of the event loop, and those that come while others are
 * written, leave with one write: each write may wake the other side.
 */
export class FrameSender {
  readonly #sink: ByteSink;
  readonly #fail: (reason: unknown) => void;
  /** Full buffers that wait, and how much is in them. */
  readonly #queue: Uint8Array<ArrayBuffer>[] = [];
  #queuedByteSize = 0;
  /** Where the next frame goes. */
  #buffer = new Uint8Array(BUFFER_BYTE_SIZE);
  #filled = 0;
  /** A buffer that was written and can be used again. */
  #spare: Uint8Array<ArrayBuffer> | undefined;
  #isBusy = false;

  /** `fail`: the connection takes nothing more; called once at least, and then nothing is sent. */
  constructor(sink: ByteSink, fail: (reason: unknown) => void) {
    this.#sink = sink;
    this.#fail = fail;
  }

  /** @throws RangeError when the frame is larger than the other side takes. */
  send(kind: number, id: number, json = "", payload?: FramePayload): void {
    const bound = frameByteSizeBound(json, payload);
    if (this.#filled + bound > this.#buffer.length) this.#changeBuffer(bound);
    const room = this.#buffer.subarray(this.#filled);
    this.#filled += encodeFrame(room, { kind, id, json, payload });
    if (this.#queuedByteSize + this.#filled > QUEUED_BYTE_SIZE_MAX) {
      this.#fail(new RangeError("The other side does not read any more"));
      return;
    }
    if (this.#isBusy) return;
    this.#isBusy = true;
    queueMicrotask(this.#writeNext);
  }

  /** Goes on with a buffer that has room for so many bytes. */
  #changeBuffer(byteSize: number): void {
    if (this.#filled > 0) {
      this.#queue.push(this.#buffer.subarray(0, this.#filled));
      this.#queuedByteSize += this.#filled;
    }
    this.#buffer = this.#nextBuffer(byteSize);
    this.#filled = 0;
  }

  #nextBuffer(byteSize: number): Uint8Array<ArrayBuffer> {
    if (byteSize > BUFFER_BYTE_SIZE) return new Uint8Array(byteSize);
    const spare = this.#spare ?? new Uint8Array(BUFFER_BYTE_SIZE);
    this.#spare = undefined;
    return spare;
  }

  readonly #writeNext = (): void => {
    let next = this.#queue.shift();
    if (next !== undefined) this.#queuedByteSize -= next.length;
    else if (this.#filled > 0) {
      next = this.#buffer.subarray(0, this.#filled);
      this.#buffer = this.#nextBuffer(0);
      this.#filled = 0;
    } else {
      this.#isBusy = false;
      return;
    }
    this.#write(next);
  };

  #write(bytes: Uint8Array<ArrayBuffer>): void {
    this.#sink.write(bytes).then((count) => {
      if (count < bytes.length) return this.#write(bytes.subarray(count));
      if (bytes.buffer.byteLength === BUFFER_BYTE_SIZE) this.#spare = new Uint8Array(bytes.buffer);
      this.#writeNext();
    }, this.#fail);
  }
}
