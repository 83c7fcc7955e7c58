import { closeQuietly, type Connection, type TransportContext } from "./connection.ts";
import { FRAME_HEAD_BYTES } from "./http2_frames.ts";
import { releaseScratch, SCRATCH_BYTES, takeScratch } from "./scratch.ts";
import { TimedWriter } from "./timed_writer.ts";

/** Payloads from this size on are written where they lie. */
export const LARGE_PART_BYTES = 16_384;

const EMPTY = new Uint8Array(0);

/**
 * Output side of an HTTP/2 connection. The frames of all streams that are queued in one turn of the event loop leave
 * in one write; large payloads are queued by reference between the gathered small ones.
 */
export class Http2Output {
  readonly #connection: Connection;
  readonly #context: TransportContext;
  readonly #writer: TimedWriter;
  /** Called after each write with room for more. */
  readonly #onProgress: () => void;
  #scratch: Uint8Array = EMPTY;
  #filled = 0;
  /** Bytes of `#scratch` that are in `#segments` already. */
  #cut = 0;
  #segments: Uint8Array[] = [];
  #segmentBytes = 0;
  #fullScratches: Uint8Array[] = [];
  #callbacks: (() => void)[] = [];
  #isScheduled = false;
  #isFlushing = false;
  #closed = false;

  constructor(connection: Connection, context: TransportContext, onProgress: () => void) {
    this.#connection = connection;
    this.#context = context;
    this.#writer = new TimedWriter(connection, context);
    this.#onProgress = onProgress;
  }

  /** Bytes that no write has taken yet. */
  get pendingBytes(): number {
    return this.#segmentBytes + this.#filled - this.#cut;
  }

  /** A write has been waiting for the peer for too long. */
  get isStalled(): boolean {
    return this.#writer.isStalled;
  }

  /** A whole frame with a small payload. */
  frame(head: { type: number; flags: number; streamId: number }, payload: Uint8Array): void {
    this.frameHead(head, payload.length);
    this.payload(payload);
  }

  /** Head of a frame whose payload follows with `payload`. */
  frameHead(
    { type, flags, streamId }: { type: number; flags: number; streamId: number },
    byteSize: number,
  ): void {
    this.#reserve(FRAME_HEAD_BYTES);
    const out = this.#scratch;
    let at = this.#filled;
    out[at++] = byteSize >>> 16;
    out[at++] = byteSize >>> 8;
    out[at++] = byteSize;
    out[at++] = type;
    out[at++] = flags;
    out[at++] = streamId >>> 24;
    out[at++] = streamId >>> 16;
    out[at++] = streamId >>> 8;
    out[at++] = streamId;
    this.#filled = at;
    this.#schedule();
  }

  /** Bytes of a frame; large ones are kept by reference until `afterWrite` callbacks run. */
  payload(bytes: Uint8Array): void {
    if (bytes.length >= LARGE_PART_BYTES) {
      this.#cutSegment();
      this.#segments.push(bytes);
      this.#segmentBytes += bytes.length;
    } else if (bytes.length > 0) {
      this.#reserve(bytes.length);
      this.#scratch.set(bytes, this.#filled);
      this.#filled += bytes.length;
    }
  }

  /** Calls back once when all that is queued now was written, or never will be. */
  afterWrite(callback: () => void): void {
    this.#callbacks.push(callback);
    this.#schedule();
  }

  /** Resolves when everything queued was written or the connection is gone. */
  flushed(): Promise<void> {
    return new Promise((resolve) => this.afterWrite(resolve));
  }

  /** Nothing more is written; callbacks run as soon as no write uses their bytes. */
  close(): void {
    this.#closed = true;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isFlushing) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    this.#isFlushing = true;
    while (!this.#closed && (this.pendingBytes > 0 || this.#callbacks.length > 0)) {
      const callbacks = this.#callbacks;
      this.#callbacks = [];
      try {
        await this.#writeQueued();
      } catch {
        this.#closed = true;
        closeQuietly(this.#connection);
      }
      this.#call(callbacks);
      if (!this.#closed) this.#onProgress();
    }
    this.#isFlushing = false;
    if (this.#closed) this.#abandon();
  }

  async #writeQueued(): Promise<void> {
    if (this.pendingBytes === 0) return;
    this.#cutSegment();
    const segments = this.#segments;
    const scratches = this.#fullScratches;
    scratches.push(this.#scratch);
    this.#segments = [];
    this.#fullScratches = [];
    this.#segmentBytes = 0;
    this.#scratch = EMPTY;
    this.#filled = this.#cut = 0;
    for (const segment of segments) await this.#writer.write(segment);
    for (const scratch of scratches) releaseScratch(scratch);
  }

  #abandon(): void {
    this.#segments = [];
    this.#segmentBytes = 0;
    this.#filled = this.#cut = 0;
    const callbacks = this.#callbacks;
    this.#callbacks = [];
    this.#call(callbacks);
  }

  #call(callbacks: readonly (() => void)[]): void {
    for (const callback of callbacks) {
      try {
        callback();
      } catch (error) {
        this.#context.reportError(error);
      }
    }
  }

  #cutSegment(): void {
    if (this.#filled === this.#cut) return;
    const segment = this.#scratch.subarray(this.#cut, this.#filled);
    this.#segments.push(segment);
    this.#segmentBytes += segment.length;
    this.#cut = this.#filled;
  }

  #reserve(byteSize: number): void {
    if (this.#scratch === EMPTY) this.#scratch = takeScratch();
    if (this.#filled + byteSize <= this.#scratch.length) return;
    this.#cutSegment();
    this.#fullScratches.push(this.#scratch);
    this.#scratch = byteSize > SCRATCH_BYTES ? new Uint8Array(byteSize) : takeScratch();
    this.#filled = this.#cut = 0;
  }
}
