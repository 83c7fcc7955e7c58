import { ServerError } from "./status.ts";

/** Wire types of protobuf; 3 and 4 delimit groups, which only unknown fields can be. */
export const WireKind = { varint: 0, fixed64: 1, bytes: 2, startGroup: 3, endGroup: 4, fixed32: 5 };

const MAX_GROUP_DEPTH = 100;
const SHORT_STRING_BYTES = 64;
const TWO_32 = 4294967296;

/** The error for bytes that are no protobuf message of the expected type. */
export function unparsable(): ServerError {
  return new ServerError("INTERNAL", "Unable to parse request");
}

/**
 * Reads protobuf fields in place. `bytes()` returns views, nothing is copied but strings. Every method throws
 * {@linkcode unparsable} at malformed or truncated input, and none reads outside its range.
 */
export class WireReader {
  readonly buffer: Uint8Array;
  position: number;
  readonly end: number;
  /** Upper half of the last `varint64()`, unsigned. */
  high = 0;

  constructor(buffer: Uint8Array, start = 0, end = buffer.length) {
    this.buffer = buffer;
    this.position = start;
    this.end = end;
  }

  get done(): boolean {
    return this.position >= this.end;
  }

  /** Field number × 8 + wire kind. */
  tag(): number {
    const byte = this.position < this.end ? this.buffer[this.position]! : 0;
    if (byte >= 8 && byte < 0x80) {
      this.position++;
      return byte;
    }
    const tag = this.varint64();
    if (this.high !== 0 || tag < 8) throw unparsable();
    return tag;
  }

  /** Reads a varint of up to ten bytes: returns its low 32 bits unsigned and leaves the rest in `high`. */
  varint64(): number {
    const buffer = this.buffer;
    let position = this.position;
    const end = this.end;
    if (position >= end) throw unparsable();
    let byte = buffer[position++]!;
    if (byte < 0x80) {
      this.position = position;
      this.high = 0;
      return byte;
    }
    let low = byte & 0x7f;
    let high = 0;
    for (let shift = 7; shift < 70; shift += 7) {
      if (position >= end) throw unparsable();
      byte = buffer[position++]!;
      const bits = byte & 0x7f;
      if (shift < 28) low |= bits << shift;
      else if (shift === 28) {
        low |= bits << 28;
        high = bits >>> 4;
      } else high |= bits << (shift - 32);
      if (byte < 0x80) {
        this.position = position;
        this.high = high >>> 0;
        return low >>> 0;
      }
    }
    throw unparsable();
  }

  /**
   * Stores the low 32 bits of all varints up to `end` into `target` from `at` on; returns where it stopped. The bytes
   * must have been checked to be whole varints.
   */
  varints32(end: number, target: Uint8Array | Uint16Array | Uint32Array, at: number): number {
    const { buffer } = this;
    let { position } = this;
    let index = at;
    while (position < end) {
      let byte = buffer[position++]!;
      let value = byte & 0x7f;
      for (let shift = 7; byte >= 0x80; shift += 7) {
        byte = buffer[position++]!;
        // Shifts count modulo 32: what lies above must not come in again.
        if (shift < 32) value |= (byte & 0x7f) << shift;
      }
      target[index++] = value;
    }
    this.position = position;
    return index;
  }

  /** The same for all 64 bits: two words for each varint, the lower one first. */
  varints64(end: number, target: Uint32Array, at: number): number {
    const { buffer } = this;
    let { position } = this;
    let index = at;
    while (position < end) {
      let byte = buffer[position++]!;
      let low = byte & 0x7f;
      let high = 0;
      for (let shift = 7; byte >= 0x80; shift += 7) {
        byte = buffer[position++]!;
        const bits = byte & 0x7f;
        if (shift < 28) low |= bits << shift;
        else if (shift === 28) {
          low |= bits << 28;
          high = bits >>> 4;
        } else high |= bits << (shift - 32);
      }
      target[index++] = low;
      target[index++] = high;
    }
    this.position = position;
    return index;
  }

  /** A length that lies inside the range that is left. */
  length(): number {
    const byte = this.position < this.end ? this.buffer[this.position]! : 0x80;
    if (byte < 0x80 && byte < this.end - this.position) {
      this.position++;
      return byte;
    }
    const length = this.varint64();
    if (this.high !== 0 || length > this.end - this.position) throw unparsable();
    return length;
  }

  bool(): boolean {
    return this.varint64() !== 0 || this.high !== 0;
  }

  /** A signed 64-bit integer: a number where that is exact, otherwise a bigint. */
  int64(): number | bigint {
    const low = this.varint64();
    const value = (this.high | 0) * TWO_32 + low;
    return Number.isSafeInteger(value) ? value : this.#wide(low);
  }

  int64Exact(): bigint {
    return this.#wide(this.varint64());
  }

  uint64Exact(): bigint {
    return BigInt.asUintN(64, this.#wide(this.varint64()));
  }

  #wide(low: number): bigint {
    return (BigInt(this.high | 0) << 32n) | BigInt(low);
  }

  double(): number {
    const start = this.position;
    this.#advance(8);
    return new DataView(this.buffer.buffer, this.buffer.byteOffset).getFloat64(start, true);
  }

  bytes(): Uint8Array {
    const length = this.length();
    const start = this.position;
    this.position = start + length;
    return this.buffer.subarray(start, start + length);
  }

  /** A reader over a length-delimited field. */
  message(): WireReader {
    const length = this.length();
    const start = this.position;
    this.position = start + length;
    return new WireReader(this.buffer, start, start + length);
  }

  /** UTF-8 text; malformed UTF-8 is refused. */
  string(): string {
    const length = this.length();
    const start = this.position;
    const end = start + length;
    this.position = end;
    if (length <= SHORT_STRING_BYTES) {
      const text = asciiText(this.buffer, start, end);
      if (text !== undefined) return text;
    }
    try {
      return textDecoder().decode(this.buffer.subarray(start, end));
    } catch {
      throw unparsable();
    }
  }

  /** Passes over the value of a field with this tag. */
  skip(tag: number, depth = 0): void {
    const kind = tag & 7;
    if (kind === WireKind.varint) this.varint64();
    else if (kind === WireKind.fixed64) this.#advance(8);
    else if (kind === WireKind.bytes) this.#advance(this.length());
    else if (kind === WireKind.fixed32) this.#advance(4);
    else if (kind === WireKind.startGroup && depth < MAX_GROUP_DEPTH) this.#skipGroup(tag, depth);
    else throw unparsable();
  }

  #skipGroup(tag: number, depth: number): void {
    for (;;) {
      const inner = this.tag();
      if (inner === tag + 1) return;
      this.skip(inner, depth + 1);
    }
  }

  #advance(count: number): void {
    if (count > this.end - this.position) throw unparsable();
    this.position += count;
  }
}

function asciiText(buffer: Uint8Array, start: number, end: number): string | undefined {
  let text = "";
  for (let index = start; index < end; index++) {
    const byte = buffer[index]!;
    if (byte >= 0x80) return undefined;
    text += String.fromCharCode(byte);
  }
  return text;
}

let decoder: TextDecoder | undefined;

function textDecoder(): TextDecoder {
  return decoder ??= new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
}

const CHUNK_BYTES = 65536;
const MIN_ROOM_BYTES = 1024;

/**
 * Writes protobuf fields one after the other into chunks of memory; `take()` hands out what was written as a view, and
 * no byte is written twice. One writer serves everything that runs to its end without waiting.
 */
export class WireWriter {
  #buffer = new Uint8Array(CHUNK_BYTES);
  #base = 0;
  position = 0;
  readonly #encoder = new TextEncoder();

  /** Starts a message, leaving `offset` bytes free at the front; returns where its free bytes end. */
  start(offset: number): number {
    const { length } = this.#buffer;
    if (length > CHUNK_BYTES || length - this.#base < MIN_ROOM_BYTES + offset) {
      this.#buffer = new Uint8Array(CHUNK_BYTES);
      this.#base = 0;
    }
    return this.position = this.#base + offset;
  }

  /** What was written from `start` on; ends the message. */
  take(start: number): Uint8Array {
    this.#base = this.position;
    return this.#buffer.subarray(start, this.position);
  }

  byte(value: number): void {
    if (this.position >= this.#buffer.length) this.#grow(1);
    this.#buffer[this.position++] = value;
  }

  /** A varint of a non-negative safe integer. */
  varint(value: number): void {
    let rest = value;
    while (rest > 0x7fffffff) {
      this.byte((rest % 128) | 0x80);
      rest = Math.floor(rest / 128);
    }
    while (rest > 0x7f) {
      this.byte((rest & 0x7f) | 0x80);
      rest >>>= 7;
    }
    this.byte(rest);
  }

  /** A varint of a signed 64-bit integer. */
  int64(value: number | bigint): void {
    if (typeof value === "number" && value >= 0) return this.varint(value);
    let rest = BigInt.asUintN(64, BigInt(value));
    while (rest > 0x7fn) {
      this.byte(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.byte(Number(rest));
  }

  double(value: number): void {
    if (this.position + 8 > this.#buffer.length) this.#grow(8);
    new DataView(this.#buffer.buffer).setFloat64(this.position, value, true);
    this.position += 8;
  }

  /** A length-delimited text field; nothing when empty and not `always`. */
  text(tag: number, value: string, always = false): void {
    if (value === "" && !always) return;
    this.byte(tag);
    const start = this.begin();
    if (this.position + value.length > this.#buffer.length) this.#grow(value.length);
    const buffer = this.#buffer;
    let position = this.position;
    for (let index = 0; index < value.length; index++) {
      const code = value.charCodeAt(index);
      if (code >= 0x80) return this.#wideText(value, start);
      buffer[position++] = code;
    }
    this.position = position;
    this.close(start);
  }

  #wideText(value: string, start: number): void {
    this.raw(this.#encoder.encode(value));
    this.close(start);
  }

  /** Bytes as they are, without a length. */
  raw(bytes: Uint8Array): void {
    if (this.position + bytes.length > this.#buffer.length) this.#grow(bytes.length);
    this.#buffer.set(bytes, this.position);
    this.position += bytes.length;
  }

  /** Opens a length-delimited field whose tag was just written; give the result to `close()`. */
  begin(): number {
    this.byte(0);
    return this.position;
  }

  /** Puts the length of what was written since `begin()` in front of it. */
  close(start: number): void {
    const length = this.position - start;
    if (length < 0x80) {
      this.#buffer[start - 1] = length;
      return;
    }
    const extra = varintBytes(length) - 1;
    if (this.position + extra > this.#buffer.length) this.#grow(extra);
    this.#buffer.copyWithin(start + extra, start, this.position);
    this.position = start - 1;
    this.varint(length);
    this.position = start + extra + length;
  }

  #grow(count: number): void {
    const bigger = new Uint8Array(Math.max(this.#buffer.length * 2, this.position + count));
    bigger.set(this.#buffer);
    this.#buffer = bigger;
  }
}

/** Bytes of the varint of a non-negative safe integer. */
export function varintBytes(value: number): number {
  let count = 1;
  for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 128)) count++;
  return count;
}
