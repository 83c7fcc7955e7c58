import type { JsonReader } from "./json_reader.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Escape letter → byte; 0 = no such escape. `\u` is treated apart. */
const ESCAPES = new Uint8Array(128);
for (const [letter, byte] of ['""', "\\\\", "//", "b\b", "f\f", "n\n", "r\r", "t\t"]) {
  ESCAPES[letter!.charCodeAt(0)] = byte!.charCodeAt(0);
}

/** What a scan over a string literal learned. */
export interface StringSpan {
  /** Offset of the first byte after the opening quotation mark. */
  readonly start: number;
  /** Offset of the closing quotation mark. */
  readonly end: number;
  readonly hasEscapes: boolean;
  readonly isAscii: boolean;
}

/** Finds the end of the string literal whose opening quotation mark is at `reader.offset`; the reader moves behind it. */
export function scanString(reader: JsonReader): StringSpan {
  const { bytes } = reader;
  const start = reader.offset + 1;
  const limit = reader.end;
  let at = start;
  let hasEscapes = false;
  let seen = 0;
  for (; at < limit; at++) {
    const byte = bytes[at]!;
    if (byte === QUOTE) break;
    if (byte < 0x20) reader.fail("Control character in string.", at);
    if (byte === BACKSLASH) {
      hasEscapes = true;
      at++;
    }
    seen |= byte;
  }
  if (at >= limit) reader.fail("Missing a closing quotation mark in string.", start - 1);
  reader.offset = at + 1;
  return { start, end: at, hasEscapes, isAscii: seen < 0x80 };
}

/**
 * Writes the content of a string literal as UTF-8 to `target` from `targetOffset` on, and returns the number of bytes,
 * which is never more than `span.end - span.start`.
 * @throws ServerError when an escape or the UTF-8 is malformed.
 */
export function writeString(
  reader: JsonReader,
  span: StringSpan,
  target: Uint8Array,
  targetOffset: number,
): number {
  const { bytes } = reader;
  if (!span.isAscii) checkUtf8(reader, span);
  if (!span.hasEscapes) {
    target.set(bytes.subarray(span.start, span.end), targetOffset);
    return span.end - span.start;
  }
  let to = targetOffset;
  let at = span.start;
  while (at < span.end) {
    const byte = bytes[at++]!;
    if (byte !== BACKSLASH) {
      target[to++] = byte;
      continue;
    }
    const letter = bytes[at++]!;
    if (letter === 0x75) {
      const unit = readHex(reader, at, span.end);
      at += 4;
      let code = unit;
      if (unit >= 0xd800 && unit < 0xe000) {
        code = readSurrogatePair(reader, { unit, at, end: span.end });
        at += 6;
      }
      to = writeCodePoint(target, to, code);
      continue;
    }
    const replaced = letter < 128 ? ESCAPES[letter]! : 0;
    if (replaced === 0) reader.fail("Invalid escape character in string.", at - 1);
    target[to++] = replaced;
  }
  return to - targetOffset;
}

function readHex(reader: JsonReader, at: number, end: number): number {
  if (at + 4 > end) reader.fail("Incomplete \\u escape in string.", at);
  let unit = 0;
  for (let index = at; index < at + 4; index++) {
    const byte = reader.bytes[index]!;
    const lower = byte | 0x20;
    let digit: number;
    if (byte >= 0x30 && byte <= 0x39) digit = byte - 0x30;
    else if (lower >= 0x61 && lower <= 0x66) digit = lower - 0x57;
    else return reader.fail("Incorrect hexadecimal digit in \\u escape.", index);
    unit = unit * 16 + digit;
  }
  return unit;
}

function readSurrogatePair(
  reader: JsonReader,
  { unit, at, end }: { unit: number; at: number; end: number },
): number {
  const { bytes } = reader;
  if (unit < 0xdc00 && at + 6 <= end && bytes[at] === BACKSLASH && bytes[at + 1] === 0x75) {
    const second = readHex(reader, at + 2, end);
    if (second >= 0xdc00 && second < 0xe000) {
      return 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
    }
  }
  return reader.fail("Surrogate without its other half in string.", at - 6);
}

function writeCodePoint(target: Uint8Array, offset: number, code: number): number {
  let to = offset;
  if (code < 0x80) {
    target[to++] = code;
  } else if (code < 0x800) {
    target[to++] = 0xc0 | (code >> 6);
    target[to++] = 0x80 | (code & 0x3f);
  } else if (code < 0x10000) {
    target[to++] = 0xe0 | (code >> 12);
    target[to++] = 0x80 | ((code >> 6) & 0x3f);
    target[to++] = 0x80 | (code & 0x3f);
  } else {
    target[to++] = 0xf0 | (code >> 18);
    target[to++] = 0x80 | ((code >> 12) & 0x3f);
    target[to++] = 0x80 | ((code >> 6) & 0x3f);
    target[to++] = 0x80 | (code & 0x3f);
  }
  return to;
}

function checkUtf8(reader: JsonReader, span: StringSpan): void {
  const at = findInvalidUtf8(reader.bytes, span.start, span.end);
  if (at >= 0) reader.fail("Invalid UTF-8 in string.", at);
}

/** Offset of the first byte in `[start, end)` that is not part of well-formed UTF-8; -1 when all is well. */
export function findInvalidUtf8(bytes: Uint8Array, start: number, end: number): number {
  let at = start;
  while (at < end) {
    const lead = bytes[at]!;
    if (lead < 0x80) {
      at++;
      continue;
    }
    const length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length === 0 || at + length > end) return at;
    const second = bytes[at + 1]!;
    // Overlong forms, surrogates and what lies above U+10FFFF show in the second byte.
    const low = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const high = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    if (second < low || second > high) return at;
    for (let index = 2; index < length; index++) {
      if ((bytes[at + index]! & 0xc0) !== 0x80) return at;
    }
    at += length;
  }
  return -1;
}
