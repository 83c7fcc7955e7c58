import { encodeFrame, frameByteSizeBound, type FramePayload } from "./stub_wire.ts";

/** What waits to be written: behind that, the other side does not read any more. */
const QUEUED_BYTE_SIZE_MAX = 1024 * 1024 * 1024;
const BUFFER_BYTE_SIZE = 64 * 1024;

/** The part of a connection that is written to. */
export interface ByteSink {
  write(bytes: Uint8Array): Promise<number>;
}

/** Sends frames on one connection, one write each, in order. */
export class FrameSender {
  readonly #sink: ByteSink;
  readonly #fail: (reason: unknown) => void;
  readonly #queue: Uint8Array[] = [];
  #queuedByteSize = 0;
  #buffer = new Uint8Array(BUFFER_BYTE_SIZE);
  #isWriting = false;

  /** `fail`: the connection takes nothing more; called once at least, and then nothing is sent. */
  constructor(sink: ByteSink, fail: (reason: unknown) => void) {
    this.#sink = sink;
    this.#fail = fail;
  }

  /** @throws RangeError when the frame is larger than the other side takes. */
  send(kind: number, id: number, json = "", payload?: FramePayload): void {
    const bound = frameByteSizeBound(json, payload);
    if (!this.#isWriting) {
      if (bound > this.#buffer.length) this.#buffer = new Uint8Array(bound);
      const size = encodeFrame(this.#buffer, { kind, id, json, payload });
      this.#write(this.#buffer.subarray(0, size));
      return;
    }
    const bytes = new Uint8Array(bound);
    const frame = bytes.subarray(0, encodeFrame(bytes, { kind, id, json, payload }));
    this.#queuedByteSize += frame.length;
    if (this.#queuedByteSize > QUEUED_BYTE_SIZE_MAX) {
      this.#fail(new RangeError("The other side does not read any more"));
      return;
    }
    this.#queue.push(frame);
  }

  #write(bytes: Uint8Array): void {
    this.#isWriting = true;
    this.#sink.write(bytes).then((count) => {
      if (count < bytes.length) this.#write(bytes.subarray(count));
      else this.#writeNext();
    }, this.#fail);
  }

  #writeNext(): void {
    this.#isWriting = false;
    if (this.#buffer.length > BUFFER_BYTE_SIZE) this.#buffer = new Uint8Array(BUFFER_BYTE_SIZE);
    const next = this.#queue.shift();
    if (next === undefined) return;
    this.#queuedByteSize -= next.length;
    this.#write(next);
  }
}
