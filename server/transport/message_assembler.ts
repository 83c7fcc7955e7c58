import { type MemoryAccount, ReceiveBuffer } from "./receive_buffer.ts";
import type { StreamSink } from "./stream_sink.ts";
import type { MessageRefusal, RpcStream } from "./transport.ts";

/** Flag and length in front of every gRPC message. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;

/** The stream whose messages are assembled. */
export interface AssembledStream extends RpcStream {
  readonly headersSent: boolean;
}

/** What an assembler is made with. */
export interface MessageAssemblerOptions {
  readonly account: MemoryAccount;
  readonly maxMessageBytes: number;
  /** Finishes a stream whose handler does not map refusals itself. */
  readonly refuse: (stream: AssembledStream, refusal: MessageRefusal) => void;
}

/** Cuts the bytes of a gRPC stream into messages, each in a pooled buffer that is filled once. */
export class MessageAssembler implements StreamSink {
  readonly #stream: AssembledStream;
  readonly #options: MessageAssemblerOptions;
  #prefixBytes = 0;
  #isCompressed = false;
  #byteSize = 0;
  #buffer: ReceiveBuffer | undefined;
  #isReadingDirectly = false;
  #stopped = false;

  constructor(stream: AssembledStream, options: MessageAssemblerOptions) {
    this.#stream = stream;
    this.#options = options;
  }

  get isReceiving(): boolean {
    return this.#prefixBytes > 0 && !this.#stopped;
  }

  data(bytes: Uint8Array, start: number, end: number): void {
    let at = start;
    while (at < end && !this.#stopped) {
      if (this.#buffer === undefined) {
        at = this.#readPrefix(bytes, at, end);
        if (this.#prefixBytes < PREFIX_BYTES || !this.#beginMessage()) continue;
      }
      const buffer = this.#buffer!;
      const stop = Math.min(end, at + this.#byteSize - buffer.filled);
      if (!buffer.append(bytes, at, stop)) return this.#refuseMemory();
      at = stop;
      if (buffer.filled === this.#byteSize) this.#deliver();
    }
  }

  directRoom(wanted: number): Uint8Array | undefined {
    const buffer = this.#buffer;
    if (buffer === undefined || this.#stopped) return undefined;
    const room = buffer.reserve(Math.min(wanted, this.#byteSize - buffer.filled));
    this.#isReadingDirectly = room !== undefined;
    return room;
  }

  directFilled(count: number): void {
    this.#isReadingDirectly = false;
    const buffer = this.#buffer;
    if (buffer === undefined) return;
    if (this.#stopped) {
      this.#releaseBuffer();
    } else if (!buffer.advance(count)) {
      this.#refuseMemory();
    } else if (buffer.filled === this.#byteSize) {
      this.#deliver();
    }
  }

  end(): void {
    if (this.#stopped) return;
    if (this.isReceiving) {
      const message = "Stream ended inside a message";
      return this.#refuse({ reason: "malformed", byteSize: this.#byteSize, message });
    }
    this.#stream.onEnd();
  }

  reset(): void {
    this.dispose();
    this.#stream.onReset();
  }

  dispose(): void {
    this.#stopped = true;
    if (!this.#isReadingDirectly) this.#releaseBuffer();
  }

  #readPrefix(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    while (at < end && this.#prefixBytes < PREFIX_BYTES) {
      const byte = bytes[at++]!;
      if (this.#prefixBytes++ === 0) {
        if (byte > COMPRESSED) {
          const message = `Message has flag byte ${byte}, expected 0 or 1`;
          this.#refuse({ reason: "malformed", byteSize: 0, message });
          return end;
        }
        this.#isCompressed = byte === COMPRESSED;
        this.#byteSize = 0;
      } else {
        this.#byteSize = this.#byteSize * 256 + byte;
      }
    }
    return at;
  }

  /** Takes a buffer for a message whose prefix is complete; false when there is nothing to wait for. */
  #beginMessage(): boolean {
    const byteSize = this.#byteSize;
    const { maxMessageBytes, account } = this.#options;
    if (byteSize > maxMessageBytes) {
      const message = `Received message larger than max (${byteSize} vs. ${maxMessageBytes})`;
      this.#refuse({ reason: "too_large", byteSize, message });
      return false;
    }
    this.#buffer = ReceiveBuffer.tryCreate(account, byteSize);
    if (this.#buffer === undefined) {
      this.#refuseMemory();
      return false;
    }
    if (byteSize > 0) return true;
    this.#deliver();
    return false;
  }

  #deliver(): void {
    const buffer = this.#buffer!;
    this.#buffer = undefined;
    this.#prefixBytes = 0;
    this.#stream.onMessage(buffer.bytes, this.#isCompressed, () => buffer.release());
  }

  #refuseMemory(): void {
    const message = "Message cannot be held: the memory for messages is used up";
    this.#refuse({ reason: "no_memory", byteSize: this.#byteSize, message });
  }

  #refuse(refusal: MessageRefusal): void {
    this.dispose();
    if (this.#stream.onRefused !== undefined) this.#stream.onRefused(refusal);
    else this.#options.refuse(this.#stream, refusal);
  }

  #releaseBuffer(): void {
    const buffer = this.#buffer;
    this.#buffer = undefined;
    buffer?.release();
  }
}
