import { composeDouble, composeSingle } from "./decimal.ts";

/** Digits of the first and second part: as many as fit into a small integer of the engine. */
const PART_DIGITS = 9;
/** Digits of all parts together: as many as the largest uint64 has, 18446744073709551615. */
const DIGITS_MAX = 20;
/** Decimal digits that a double surely holds exactly. */
const EXACT_DIGITS = 15;
const TWO_TO_32 = 0x1_0000_0000;

const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const ZERO = 0x30;

/**
 * What {@linkcode scanNumber} found, as small integers only: a record that is used again for each element of a tensor,
 * so that reading one allocates nothing.
 */
export class NumberToken {
  /** Offset of the first byte after the token. */
  end = 0;
  /** What is wrong with the token; "" when it is a number. */
  problem = "";
  isNegative = false;
  /** Neither fraction nor exponent. */
  isWhole = false;
  /** Significant digits, without zeros in front; the first 9, the next 9 and the next 2 of them are kept. */
  digitCount = 0;
  first = 0;
  second = 0;
  third = 0;
  /** The number is its digits times ten to this. */
  exponent = 0;

  /** True for what the protocol calls "int": a whole number in the range of int64. */
  get isInt64(): boolean {
    if (!this.isWhole || this.digitCount > 19) return false;
    if (this.digitCount < 19) return true;
    const magnitude = this.#magnitude();
    return this.isNegative ? magnitude <= 1n << 63n : magnitude < 1n << 63n;
  }

  /** True for what the protocol calls "uint": a whole number in the range of uint64. */
  get isUint64(): boolean {
    if (!this.isWhole || this.digitCount > DIGITS_MAX) return false;
    if (this.isNegative && this.digitCount > 0) return false;
    return this.digitCount < DIGITS_MAX || this.#magnitude() < 1n << 64n;
  }

  /** The value of a whole number of at most 15 digits; exact. */
  get shortInteger(): number {
    const magnitude = this.digitCount <= PART_DIGITS
      ? this.first
      : this.first * 10 ** (this.digitCount - PART_DIGITS) + this.second;
    return this.isNegative ? -magnitude : magnitude;
  }

  /** The value of a whole number of at most 20 digits. */
  toBigInt(): bigint {
    return this.isNegative ? -this.#magnitude() : this.#magnitude();
  }

  #magnitude(): bigint {
    if (this.digitCount <= EXACT_DIGITS) return BigInt(Math.abs(this.shortInteger));
    const secondDigits = Math.min(this.digitCount, 2 * PART_DIGITS) - PART_DIGITS;
    const thirdDigits = this.digitCount - PART_DIGITS - secondDigits;
    const upper = BigInt(this.first) * BigInt(10 ** secondDigits) + BigInt(this.second);
    return upper * BigInt(10 ** thirdDigits) + BigInt(this.third);
  }

  /**
   * Writes the low 64 bits of an integer of any sign in two's complement to `words[index]` (lower half) and
   * `words[index + 1]`.
   */
  writeWords(words: Uint32Array, index: number): void {
    if (this.digitCount <= EXACT_DIGITS) {
      const value = this.shortInteger;
      words[index] = value;
      words[index + 1] = Math.floor(value / TWO_TO_32);
      return;
    }
    const value = BigInt.asUintN(64, this.toBigInt());
    words[index] = Number(value & 0xffff_ffffn);
    words[index + 1] = Number(value >> 32n);
  }

  /** The double nearest to the token, ties to even; correct to the last bit. `bytes`, `start`: where it stands. */
  toDouble(bytes: Uint8Array, start: number): number {
    return this.#complete(composeDouble(this), bytes, start);
  }

  /** A double that becomes the same FP32 number as the one of {@linkcode NumberToken.toDouble}. */
  toSingle(bytes: Uint8Array, start: number): number {
    return this.#complete(composeSingle(this), bytes, start);
  }

  #complete(magnitude: number, bytes: Uint8Array, start: number): number {
    // NaN: outside of what the fast arithmetic covers.
    if (magnitude !== magnitude) return Number(asciiText(bytes, start, this.end));
    return this.isNegative ? -magnitude : magnitude;
  }
}

/**
 * Reads one JSON number (RFC 8259) that begins at `offset`. Never throws: a malformed token sets `problem`, with
 * `end` at the offending byte.
 */
export function scanNumber(bytes: Uint8Array, offset: number, token: NumberToken): void {
  let at = offset;
  token.isNegative = bytes[at] === MINUS;
  if (token.isNegative) at++;
  token.problem = "";
  token.isWhole = true;
  token.digitCount = 0;
  token.first = 0;
  token.second = 0;
  token.third = 0;
  token.exponent = 0;
  const integerStart = at;
  if (bytes[at] === ZERO) {
    at++;
    if (isDigit(bytes[at]!)) return refuse(token, "Leading zero in number.", integerStart);
  } else {
    at = scanDigits(bytes, at, token);
    if (at === integerStart) return refuse(token, "Invalid value.", at);
  }
  let byte = bytes[at];
  if (byte === DOT) {
    const fractionStart = ++at;
    if (token.digitCount === 0) { while (bytes[at] === ZERO) at++; }
    at = scanDigits(bytes, at, token);
    if (at === fractionStart) return refuse(token, "Missing digits after the decimal point.", at);
    token.exponent = fractionStart - at;
    token.isWhole = false;
    byte = bytes[at];
  }
  token.end = at;
  if (byte === 0x65 || byte === 0x45) scanExponent(bytes, at + 1, token);
}

function refuse(token: NumberToken, problem: string, at: number): void {
  token.problem = problem;
  token.end = at;
}

function isDigit(byte: number): boolean {
  return byte >= ZERO && byte <= 0x39;
}

/** Adds the digits from `start` on to the token and returns the offset behind them. */
function scanDigits(bytes: Uint8Array, start: number, token: NumberToken): number {
  const end = bytes.length;
  let at = start;
  let count = token.digitCount;
  let part = token.first;
  let digit = 0;
  for (; count < PART_DIGITS && at < end; at++, count++) {
    digit = bytes[at]! - ZERO;
    if (digit < 0 || digit > 9) break;
    part = (part * 10 + digit) | 0;
  }
  token.first = part;
  if (count >= PART_DIGITS) {
    part = token.second;
    for (; count < 2 * PART_DIGITS && at < end; at++, count++) {
      digit = bytes[at]! - ZERO;
      if (digit < 0 || digit > 9) break;
      part = (part * 10 + digit) | 0;
    }
    token.second = part;
    if (count >= 2 * PART_DIGITS) return scanLastDigits(bytes, at, { token, count });
  }
  token.digitCount = count;
  return at;
}

/** The digits from the 19th on, of which two are kept. */
function scanLastDigits(
  bytes: Uint8Array,
  start: number,
  { token, count }: { token: NumberToken; count: number },
): number {
  let at = start;
  let total = count;
  for (; at < bytes.length && isDigit(bytes[at]!); at++, total++) {
    if (total < DIGITS_MAX) token.third = token.third * 10 + (bytes[at]! - ZERO);
  }
  token.digitCount = total;
  return at;
}

/** Reads what follows `e`. */
function scanExponent(bytes: Uint8Array, start: number, token: NumberToken): void {
  let at = start;
  const sign = bytes[at];
  if (sign === MINUS || sign === PLUS) at++;
  const digitsStart = at;
  let exponent = 0;
  for (let byte = bytes[at]!; isDigit(byte); byte = bytes[++at]!) {
    // Saturates: beyond this every number is 0 or too big anyway.
    if (exponent < 1e7) exponent = exponent * 10 + (byte - ZERO);
  }
  if (at === digitsStart) return refuse(token, "Missing digits in the exponent.", at);
  token.isWhole = false;
  token.exponent += sign === MINUS ? -exponent : exponent;
  token.end = at;
}

function asciiText(bytes: Uint8Array, start: number, end: number): string {
  let text = "";
  for (let at = start; at < end; at++) text += String.fromCharCode(bytes[at]!);
  return text;
}
