import { HttpError } from "./http_error.ts";

const LF = 10;
const CR = 13;
const TAB = 9;
const SPACE = 32;
const SEMICOLON = 59;
const DELETE = 127;
/** Enough for 2^52 bytes; longer sizes are only zeros or nonsense. */
const MAX_SIZE_DIGITS = 13;
/** Size line with extensions; all trailer fields together. */
const MAX_LINE_BYTES = 4_096;
const MAX_TRAILER_BYTES = 16_384;

type State =
  | "size"
  | "extension"
  | "size_end"
  | "content"
  | "content_cr"
  | "content_lf"
  | "trailer"
  | "trailer_line"
  | "trailer_lf"
  | "last_lf"
  | "done";

/** What `ChunkDecoder` hands out: where chunk content lies. */
export interface ChunkSink {
  /** Chunk content `bytes[start, end)`. */
  content(bytes: Uint8Array, start: number, end: number): void;
  /** A chunk of `byteSize` > 0 bytes begins. */
  begin(byteSize: number): void;
}

/** Decodes chunked transfer coding from pieces of any size. Extensions and trailers are checked and dropped. */
export class ChunkDecoder {
  #state: State = "size";
  #chunkLeft = 0;
  #digits = 0;
  #lineBytes = 0;
  #trailerBytes = 0;

  get isDone(): boolean {
    return this.#state === "done";
  }

  /** Content bytes of the current chunk that are still to come. */
  get contentLeft(): number {
    return this.#state === "content" ? this.#chunkLeft : 0;
  }

  /** Says that `count` content bytes were received without passing through `feed`. */
  skipContent(count: number): void {
    this.#chunkLeft -= count;
    if (this.#chunkLeft === 0) this.#state = "content_cr";
  }

  /** Eats bytes until the body or the input ends; returns the index of the first byte not eaten. */
  feed(bytes: Uint8Array, range: { start: number; end: number }, sink: ChunkSink): number {
    let at = range.start;
    while (at < range.end && this.#state !== "done") {
      if (this.#state === "content") {
        const stop = Math.min(range.end, at + this.#chunkLeft);
        sink.content(bytes, at, stop);
        this.skipContent(stop - at);
        at = stop;
      } else {
        this.#step(bytes[at++]!, sink);
      }
    }
    return at;
  }

  #step(byte: number, sink: ChunkSink): void {
    switch (this.#state) {
      case "size":
        return this.#sizeDigit(byte);
      case "extension":
        return this.#extensionByte(byte);
      case "size_end":
        return this.#endSizeLine(byte, sink);
      case "content_cr":
        expect(byte, CR, "Chunk is longer than its size");
        this.#state = "content_lf";
        return;
      case "content_lf":
        expect(byte, LF, "Chunk does not end with CR LF");
        this.#state = "size";
        return;
      default:
        return this.#trailerByte(byte);
    }
  }

  #sizeDigit(byte: number): void {
    const digit = hexDigit(byte);
    if (digit >= 0) {
      if (this.#digits === 0) this.#chunkLeft = 0;
      this.#chunkLeft = this.#chunkLeft * 16 + digit;
      if (++this.#digits > MAX_SIZE_DIGITS) throw new HttpError(400, "Chunk size is too long");
      return;
    }
    if (this.#digits === 0) throw new HttpError(400, "Chunk size is malformed");
    if (byte === CR) this.#state = "size_end";
    else if (byte === SEMICOLON || byte === SPACE || byte === TAB) this.#state = "extension";
    else throw new HttpError(400, "Chunk size is malformed");
  }

  #extensionByte(byte: number): void {
    if (byte === CR) {
      this.#state = "size_end";
      return;
    }
    if ((byte < SPACE && byte !== TAB) || byte === DELETE) {
      throw new HttpError(400, "Chunk extension is malformed");
    }
    if (++this.#lineBytes > MAX_LINE_BYTES) throw new HttpError(400, "Chunk extension is too long");
  }

  #endSizeLine(byte: number, sink: ChunkSink): void {
    expect(byte, LF, "Chunk size line does not end with CR LF");
    this.#digits = 0;
    this.#lineBytes = 0;
    if (this.#chunkLeft === 0) {
      this.#state = "trailer";
      return;
    }
    this.#state = "content";
    sink.begin(this.#chunkLeft);
  }

  #trailerByte(byte: number): void {
    if (++this.#trailerBytes > MAX_TRAILER_BYTES) throw new HttpError(431, "Trailer is too large");
    switch (this.#state) {
      case "trailer":
        this.#state = byte === CR ? "last_lf" : "trailer_line";
        if (byte === LF) throw new HttpError(400, "Line does not end with CR LF");
        return;
      case "trailer_line":
        if (byte === CR) this.#state = "trailer_lf";
        else if (byte === LF) throw new HttpError(400, "Line does not end with CR LF");
        return;
      case "trailer_lf":
        expect(byte, LF, "Line does not end with CR LF");
        this.#state = "trailer";
        return;
      default:
        expect(byte, LF, "Line does not end with CR LF");
        this.#state = "done";
    }
  }
}

function expect(byte: number, wanted: number, message: string): void {
  if (byte !== wanted) throw new HttpError(400, message);
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}
