/** Kind of a frame that only gives slots of memory back, in all protocols that are made of these frames. */
export const FREE_KIND = 21;

/** `[name, datatype, shape, segment, offset, byteSize]`; segment -1 = in the frame itself. */
export type WireTensor = [string, string, readonly number[], number, number, number];

/** One message of the other side. */
export interface Frame {
  readonly kind: number;
  readonly id: number;
  readonly json: Readonly<Record<string, unknown>>;
  /** The bytes after the JSON; they belong to the receiver. */
  readonly payload: Uint8Array;
}

/** Bytes before the JSON of every frame. */
export const HEAD_BYTE_SIZE = 16;
/** Most bytes after the head of a frame. */
export const FRAME_BYTE_SIZE_MAX = 256 * 1024 * 1024;
/** Of these, JSON: deep nonsense of 50 MiB takes seconds and gigabytes to parse. */
const JSON_BYTE_SIZE_MAX = 16 * 1024 * 1024;

const BUFFER_BYTE_SIZE = 64 * 1024;
const NO_BYTES = new Uint8Array();
const NO_JSON: Readonly<Record<string, unknown>> = Object.freeze({});

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder("utf-8", { fatal: true });

/** Bytes that come after the JSON, and how many they are. */
export interface FramePayload {
  readonly parts: readonly Uint8Array[];
  readonly byteSize: number;
}

/** Most bytes that a frame of this JSON text can have. */
export function frameByteSizeBound(json: string, payload?: FramePayload): number {
  return HEAD_BYTE_SIZE + json.length * 3 + (payload?.byteSize ?? 0);
}

/**
 * Writes a frame to the start of `into`, which has {@linkcode frameByteSizeBound} bytes at least.
 * @returns its size.
 * @throws RangeError when the frame is larger than the other side takes.
 */
export function encodeFrame(
  into: Uint8Array,
  { kind, id, json, payload }: {
    readonly kind: number;
    readonly id: number;
    /** JSON text of an object; "" = `{}`. */
    readonly json: string;
    readonly payload?: FramePayload | undefined;
  },
): number {
  const jsonByteSize = json === ""
    ? 0
    : textEncoder.encodeInto(json, into.subarray(HEAD_BYTE_SIZE)).written;
  if (jsonByteSize > JSON_BYTE_SIZE_MAX) {
    throw new RangeError(
      `Cannot send a frame with JSON of ${jsonByteSize} bytes: at most ${JSON_BYTE_SIZE_MAX} are allowed`,
    );
  }
  let end = HEAD_BYTE_SIZE + jsonByteSize;
  for (const part of payload?.parts ?? []) {
    into.set(part, end);
    end += part.byteLength;
  }
  if (end - HEAD_BYTE_SIZE > FRAME_BYTE_SIZE_MAX) {
    throw new RangeError(
      `Cannot send a frame of ${end} bytes: at most ${FRAME_BYTE_SIZE_MAX} are allowed`,
    );
  }
  writeUint32(into, 0, end - HEAD_BYTE_SIZE);
  writeUint32(into, 4, kind);
  writeUint32(into, 8, id);
  writeUint32(into, 12, jsonByteSize);
  return end;
}

/** Cuts what is read from a socket into frames. One read usually holds one frame. */
export class FrameReader {
  #buffer = new Uint8Array(BUFFER_BYTE_SIZE);
  #start = 0;
  #end = 0;

  /** Where the next bytes are to be read to; never empty. */
  room(): Uint8Array<ArrayBuffer> {
    if (this.#start === this.#end) {
      this.#start = this.#end = 0;
      if (this.#buffer.length > BUFFER_BYTE_SIZE) this.#buffer = new Uint8Array(BUFFER_BYTE_SIZE);
    }
    const missing = this.#start + this.#needed() - this.#buffer.length;
    if (missing > 0 || this.#end === this.#buffer.length) this.#makeRoom();
    return this.#buffer.subarray(this.#end);
  }

  /** Notes that so many bytes were read. */
  received(byteSize: number): void {
    this.#end += byteSize;
  }

  /** The next whole frame. @throws RangeError or SyntaxError for what is none. */
  next(): Frame | undefined {
    const have = this.#end - this.#start;
    if (have < HEAD_BYTE_SIZE || have < this.#needed()) return undefined;
    const buffer = this.#buffer;
    const start = this.#start + HEAD_BYTE_SIZE;
    const length = readUint32(buffer, this.#start);
    const jsonByteSize = readUint32(buffer, this.#start + 12);
    if (jsonByteSize > length) {
      throw new RangeError(`Frame of ${length} bytes has JSON of ${jsonByteSize} bytes`);
    }
    const kind = readUint32(buffer, this.#start + 4);
    const id = readUint32(buffer, this.#start + 8);
    const jsonEnd = start + jsonByteSize;
    this.#start = start + length;
    return {
      kind,
      id,
      json: jsonByteSize === 0 ? NO_JSON : parseObject(buffer.subarray(start, jsonEnd)),
      payload: jsonByteSize === length ? NO_BYTES : buffer.slice(jsonEnd, start + length),
    };
  }

  /** Bytes of the frame that begins, as far as that is known. */
  #needed(): number {
    if (this.#end - this.#start < HEAD_BYTE_SIZE) return HEAD_BYTE_SIZE;
    const length = readUint32(this.#buffer, this.#start);
    if (length > FRAME_BYTE_SIZE_MAX) {
      throw new RangeError(`Frame of ${length} bytes, at most ${FRAME_BYTE_SIZE_MAX} expected`);
    }
    const jsonByteSize = readUint32(this.#buffer, this.#start + 12);
    if (jsonByteSize > JSON_BYTE_SIZE_MAX) {
      throw new RangeError(
        `Frame with JSON of ${jsonByteSize} bytes, at most ${JSON_BYTE_SIZE_MAX} expected`,
      );
    }
    return HEAD_BYTE_SIZE + length;
  }

  #makeRoom(): void {
    const have = this.#buffer.subarray(this.#start, this.#end);
    const needed = this.#needed();
    if (needed > this.#buffer.length) {
      // Not at once: a length alone is no reason to take so much memory.
      const byteSize = Math.min(needed, Math.max(this.#buffer.length * 4, BUFFER_BYTE_SIZE));
      const larger = new Uint8Array(Math.max(byteSize, have.length + BUFFER_BYTE_SIZE));
      larger.set(have);
      this.#buffer = larger;
    } else this.#buffer.copyWithin(0, this.#start, this.#end);
    this.#end = have.length;
    this.#start = 0;
  }
}

function parseObject(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(textDecoder.decode(bytes));
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Readonly<Record<string, unknown>>;
  }
  throw new RangeError("Frame has JSON that is no object");
}

function readUint32(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | bytes[at + 1]! << 8 | bytes[at + 2]! << 16 | bytes[at + 3]! << 24) >>> 0;
}

function writeUint32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value;
  bytes[at + 1] = value >>> 8;
  bytes[at + 2] = value >>> 16;
  bytes[at + 3] = value >>> 24;
}
