import { bodyTooLarge, HttpError, noBodyMemory, PeerGoneError } from "./http_error.ts";
import { ChunkDecoder, type ChunkSink } from "./http1_chunks.ts";
import type { Http1Input } from "./http1_input.ts";
import type { TransportLimits } from "./limits.ts";
import { type MemoryAccount, ReceiveBuffer } from "./receive_buffer.ts";

/** Less than this left of a chunk is not worth a read of its own. */
const DIRECT_READ_BYTES = 16_384;

/** Reads the bodies of one connection into pooled buffers. */
export class Http1BodyReader {
  readonly #input: Http1Input;
  readonly #account: MemoryAccount;
  readonly #limits: TransportLimits;
  #buffer: ReceiveBuffer | undefined;

  constructor(input: Http1Input, account: MemoryAccount, limits: TransportLimits) {
    this.#input = input;
    this.#account = account;
    this.#limits = limits;
  }

  /** Bytes of the current body so far; decides whether it comes too slowly. */
  get received(): number {
    return this.#buffer?.filled ?? 0;
  }

  /** Refuses a body that is announced too large. */
  check(contentLength: number): void {
    const { maxBodyBytes } = this.#limits;
    if (contentLength > maxBodyBytes) throw bodyTooLarge(maxBodyBytes, contentLength);
  }

  /** A body of known length (> 0). The buffer belongs to the caller. */
  readSized(byteSize: number): ReceiveBuffer | Promise<ReceiveBuffer> {
    const buffer = this.#open(byteSize);
    const input = this.#input;
    if (input.available < byteSize) return this.#guard(buffer, this.#readRest(buffer, byteSize));
    const room = buffer.reserve(byteSize);
    if (room === undefined || room.length < byteSize) {
      return this.#guard(buffer, this.#readRest(buffer, byteSize));
    }
    room.set(input.buffer.subarray(input.start, input.start + byteSize));
    input.consume(byteSize);
    if (!buffer.advance(byteSize)) {
      buffer.release();
      throw noBodyMemory();
    }
    return buffer;
  }

  /** A chunked body. The buffer belongs to the caller. */
  readChunked(): Promise<ReceiveBuffer> {
    const buffer = this.#open(-1);
    return this.#guard(buffer, this.#readChunks(buffer));
  }

  #open(byteSize: number): ReceiveBuffer {
    const buffer = ReceiveBuffer.tryCreate(this.#account, byteSize);
    if (buffer === undefined) throw noBodyMemory();
    return buffer;
  }

  async #guard(buffer: ReceiveBuffer, reading: Promise<void>): Promise<ReceiveBuffer> {
    this.#buffer = buffer;
    try {
      await reading;
      return buffer;
    } catch (error) {
      buffer.release();
      throw error;
    } finally {
      this.#buffer = undefined;
    }
  }

  async #readRest(buffer: ReceiveBuffer, byteSize: number): Promise<void> {
    while (buffer.filled < byteSize) await this.#readDirect(buffer, byteSize - buffer.filled);
  }

  /** From the socket straight into the buffer; returns the count. */
  async #readDirect(buffer: ReceiveBuffer, wanted: number): Promise<number> {
    const room = buffer.reserve(wanted);
    if (room === undefined) throw noBodyMemory();
    const count = await this.#input.readInto(room);
    if (count === 0) throw new PeerGoneError("Body is incomplete");
    if (!buffer.advance(count)) throw noBodyMemory();
    return count;
  }

  async #readChunks(buffer: ReceiveBuffer): Promise<void> {
    const input = this.#input;
    const decoder = new ChunkDecoder();
    const sink = new ChunkCollector(buffer, this.#limits);
    for (;;) {
      const at = decoder.feed(input.buffer, { start: input.start, end: input.end }, sink);
      input.consume(at - input.start);
      if (decoder.isDone) return;
      if (input.available === 0 && decoder.contentLeft >= DIRECT_READ_BYTES) {
        decoder.skipContent(await this.#readDirect(buffer, decoder.contentLeft));
      } else if (await input.fill() === 0) {
        throw new PeerGoneError("Body is incomplete");
      }
    }
  }
}

/** Puts chunk content into the buffer and counts. */
class ChunkCollector implements ChunkSink {
  readonly #buffer: ReceiveBuffer;
  readonly #limits: TransportLimits;
  #chunkCount = 0;
  #byteSize = 0;

  constructor(buffer: ReceiveBuffer, limits: TransportLimits) {
    this.#buffer = buffer;
    this.#limits = limits;
  }

  begin(byteSize: number): void {
    const { maxChunkCount, maxBodyBytes } = this.#limits;
    if (++this.#chunkCount > maxChunkCount) {
      throw new HttpError(
        400,
        `Chunked request body exceeds maximum of ${maxChunkCount} non-empty chunks. ` +
          "Send fewer or larger HTTP chunks.",
      );
    }
    this.#byteSize += byteSize;
    if (this.#byteSize > maxBodyBytes) throw bodyTooLarge(maxBodyBytes);
  }

  content(bytes: Uint8Array, start: number, end: number): void {
    if (!this.#buffer.append(bytes, start, end)) throw noBodyMemory();
  }
}
