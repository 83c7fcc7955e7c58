import { NumberToken, scanNumber } from "./json_number.ts";
import { scanString, writeString } from "./json_string.ts";
import { ServerError } from "./status.ts";
import { makeString, type StringCache } from "./string_cache.ts";

/** Levels of arrays and objects inside each other that are accepted (http.md §1). */
export const JSON_DEPTH_MAX = 100;

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** What the next value is, by its first byte. */
export type JsonKind = "object" | "array" | "string" | "number" | "boolean" | "null";

/**
 * Reads one JSON document from bytes, value by value, in the protocol's dialect (http.md §1): RFC 8259 plus `NaN`,
 * `Inf`, `Infinity`, `-Inf`, `-Infinity`; a byte order mark in front is passed over. Malformed text throws ServerError INVALID_ARG with the byte offset.
 *
 * ```ts
 * const reader = new JsonReader(new TextEncoder().encode(`{"a":[1,2]}`));
 * for (let key = reader.firstKey(); key !== undefined; key = reader.nextKey()) reader.skipValue();
 * reader.finish();
 * ```
 */
export class JsonReader {
  readonly bytes: Uint8Array;
  readonly end: number;
  /** The number that was read last. */
  readonly number: NumberToken = new NumberToken();
  /** Values that were made of the text so far; whoever makes them counts. */
  valueCount = 0;
  offset = 0;
  readonly #strings: StringCache | undefined;

  constructor(bytes: Uint8Array, strings?: StringCache) {
    this.bytes = bytes;
    this.end = bytes.length;
    this.#strings = strings;
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) this.offset = 3;
    if (this.peek() < 0) this.fail("The document is empty.", 0);
  }

  /** Throws the error of malformed text. */
  fail(reason: string, at: number): never {
    throw new ServerError(
      "INVALID_ARG",
      `failed to parse the request JSON buffer: ${reason} at ${at}`,
    );
  }

  /** Skips white space and returns the next byte, or -1 at the end. */
  peek(): number {
    const { bytes, end } = this;
    let at = this.offset;
    while (at < end) {
      const byte = bytes[at]!;
      if (byte > 0x20 || (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09)) {
        this.offset = at;
        return byte;
      }
      at++;
    }
    this.offset = at;
    return -1;
  }

  /** Kind of the next value; throws when no value begins here. */
  kind(): JsonKind {
    const byte = this.peek();
    switch (byte) {
      case QUOTE:
        return "string";
      case OPEN_BRACE:
        return "object";
      case OPEN_BRACKET:
        return "array";
      case 0x74:
      case 0x66:
        return "boolean";
      case 0x6e:
        return "null";
      case 0x4e:
      case 0x49:
      case MINUS:
        return "number";
    }
    if (byte >= 0x30 && byte <= 0x39) return "number";
    return this.fail("Invalid value.", this.offset);
  }

  /** Enters an object and returns its first key, or leaves it at once and returns undefined when it is empty. */
  firstKey(): string | undefined {
    this.offset++;
    if (this.peek() === CLOSE_BRACE) {
      this.offset++;
      return undefined;
    }
    return this.#key();
  }

  /** The key of the next member; undefined after the last one, and the object is left. */
  nextKey(): string | undefined {
    const byte = this.peek();
    if (byte === COMMA) {
      this.offset++;
      this.peek();
      return this.#key();
    }
    if (byte !== CLOSE_BRACE) {
      this.fail("Missing a comma or } after an object member.", this.offset);
    }
    this.offset++;
    return undefined;
  }

  #key(): string {
    if (this.bytes[this.offset] !== QUOTE || this.offset >= this.end) {
      this.fail("Missing a name for object member.", this.offset);
    }
    const key = this.readString();
    if (this.peek() !== COLON) {
      this.fail("Missing a colon after a name of object member.", this.offset);
    }
    this.offset++;
    return key;
  }

  /** Enters an array; true when it has an element, which comes next. */
  firstElement(): boolean {
    this.offset++;
    if (this.peek() !== CLOSE_BRACKET) return true;
    this.offset++;
    return false;
  }

  /** True when another element comes next; false after the last one, and the array is left. */
  nextElement(): boolean {
    const byte = this.peek();
    if (byte === COMMA) {
      this.offset++;
      return true;
    }
    if (byte !== CLOSE_BRACKET) {
      this.fail("Missing a comma or ] after an array element.", this.offset);
    }
    this.offset++;
    return false;
  }

  /** Reads a string; the reader stands on its opening quotation mark. */
  readString(): string {
    const { bytes, end } = this;
    const start = this.offset + 1;
    for (let at = start; at < end; at++) {
      const byte = bytes[at]!;
      if (byte === QUOTE) {
        this.offset = at + 1;
        return this.#strings?.get(bytes, start, at) ?? makeString(bytes, start, at);
      }
      if (byte < 0x20 || byte >= 0x80 || byte === 0x5c) break;
    }
    const span = scanString(this);
    const content = new Uint8Array(span.end - span.start);
    const length = writeString(this, span, content, 0);
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(content.subarray(0, length));
  }

  /** Reads `true` or `false`. */
  readBoolean(): boolean {
    const isTrue = this.bytes[this.offset] === 0x74;
    this.#word(isTrue ? "true" : "false");
    return isTrue;
  }

  /** Reads `null`. */
  readNull(): void {
    this.#word("null");
  }

  /**
   * Reads a number into {@linkcode JsonReader.number} for what must be an integer: its value is not computed, and a
   * token that is no whole number leaves `isWhole` false.
   */
  readInteger(): void {
    const start = this.offset;
    const byte = this.bytes[start] === MINUS ? this.bytes[start + 1] : this.bytes[start];
    if (byte === 0x49 || byte === 0x4e) {
      this.#readWordNumber();
      return;
    }
    scanNumber(this.bytes, start, this.number);
    this.offset = this.number.end;
    if (this.number.problem !== "") this.fail(this.number.problem, this.number.end);
  }

  /**
   * Reads a number, or one of the words for those that are not finite, as a double; with `isSingle` it only has to
   * be right for FP32.
   */
  readDouble(isSingle = false): number {
    const start = this.offset;
    const byte = this.bytes[start] === MINUS ? this.bytes[start + 1] : this.bytes[start];
    if (byte === 0x49 || byte === 0x4e) return this.#readWordNumber();
    scanNumber(this.bytes, start, this.number);
    this.offset = this.number.end;
    if (this.number.problem !== "") this.fail(this.number.problem, this.number.end);
    const value = isSingle
      ? this.number.toSingle(this.bytes, start)
      : this.number.toDouble(this.bytes, start);
    if (value === Infinity || value === -Infinity) {
      this.fail("Number too big to be stored in double.", start);
    }
    return value;
  }

  #readWordNumber(): number {
    const { bytes } = this;
    this.number.isWhole = false;
    if (bytes[this.offset] === 0x4e) {
      this.#word("NaN");
      return NaN;
    }
    const isNegative = bytes[this.offset] === MINUS;
    if (isNegative) this.offset++;
    this.#word("Inf");
    if (bytes[this.offset] === 0x69) this.#word("inity");
    return isNegative ? -Infinity : Infinity;
  }

  #word(word: string): void {
    const { bytes, offset } = this;
    if (offset + word.length > this.end) this.fail("Invalid value.", offset);
    for (let index = 0; index < word.length; index++) {
      if (bytes[offset + index] !== word.charCodeAt(index)) this.fail("Invalid value.", offset);
    }
    this.offset = offset + word.length;
  }

  /** Reads over one value of any kind and checks its syntax. `depth` = levels it already lies in. */
  skipValue(depth = 0): void {
    switch (this.kind()) {
      case "string":
        this.#skipString();
        return;
      case "number":
        this.readDouble();
        return;
      case "boolean":
        this.readBoolean();
        return;
      case "null":
        return this.readNull();
      case "array":
        checkDepth(depth + 1);
        for (let more = this.firstElement(); more; more = this.nextElement()) {
          this.skipValue(depth + 1);
        }
        return;
      case "object":
        checkDepth(depth + 1);
        for (let key = this.firstKey(); key !== undefined; key = this.nextKey()) {
          this.skipValue(depth + 1);
        }
    }
  }

  #skipString(): void {
    const span = scanString(this);
    if (!span.isAscii || span.hasEscapes) {
      writeString(this, span, new Uint8Array(span.end - span.start), 0);
    }
  }

  /** Checks that nothing but white space follows. */
  finish(): void {
    if (this.peek() >= 0) {
      this.fail("The document root must not be followed by other values.", this.offset);
    }
  }
}

/** @throws ServerError INVALID_ARG when `depth` levels are too many. */
export function checkDepth(depth: number): void {
  if (depth > JSON_DEPTH_MAX) {
    throw new ServerError(
      "INVALID_ARG",
      `JSON nesting depth exceeds maximum allowed limit (${JSON_DEPTH_MAX})`,
    );
  }
}
