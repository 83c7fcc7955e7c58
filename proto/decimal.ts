/** Digits of a decimal number in parts: the first nine, up to nine more, and a power of ten. */
export interface Decimal {
  /** Significant digits in `first` and `second` together. */
  readonly digitCount: number;
  readonly first: number;
  readonly second: number;
  readonly exponent: number;
}

const PART_DIGITS = 9;
const MAX_DIGITS = 2 * PART_DIGITS;
/** Decimal digits that a double surely holds exactly. */
const EXACT_DIGITS = 15;
/** 10^0 … 10^22 are exact doubles. */
const MAX_EXACT_POWER = 22;
const POWERS_OF_TEN = Float64Array.from(
  { length: MAX_EXACT_POWER + 1 },
  (_, n) => Number(`1e${n}`),
);
/** Splits a double into two halves of at most 26 bits (Veltkamp). */
const SPLITTER = 2 ** 27 + 1;
const POWERS_HIGH = POWERS_OF_TEN.map((power) => power * SPLITTER - (power * SPLITTER - power));
const POWERS_LOW = POWERS_OF_TEN.map((power, n) => power - POWERS_HIGH[n]!);

/**
 * The double nearest to a decimal number, ties to even, or NaN where fast arithmetic cannot be sure of the last bit
 * (more than 18 digits, very large and very small numbers, and the middles between two doubles).
 */
export function composeDouble(decimal: Decimal): number {
  const { digitCount, exponent } = decimal;
  if (digitCount === 0) return 0;
  if (exponent < -MAX_EXACT_POWER || exponent > MAX_EXACT_POWER) return NaN;
  if (digitCount > EXACT_DIGITS) return digitCount > MAX_DIGITS ? NaN : composeLong(decimal);
  const digits = digitCount <= PART_DIGITS
    ? decimal.first
    : decimal.first * POWERS_OF_TEN[digitCount - PART_DIGITS]! + decimal.second;
  // Both operands are exact, so that the one operation rounds correctly.
  return exponent >= 0 ? digits * POWERS_OF_TEN[exponent]! : digits / POWERS_OF_TEN[-exponent]!;
}

/**
 * A double that rounds to the same FP32 number as the double nearest to the decimal number, or NaN where that is not
 * sure. Cheaper than {@linkcode composeDouble} for long numbers.
 */
export function composeSingle(decimal: Decimal): number {
  const { digitCount, exponent } = decimal;
  if (digitCount <= EXACT_DIGITS || digitCount > MAX_DIGITS) return composeDouble(decimal);
  if (exponent < -MAX_EXACT_POWER || exponent > MAX_EXACT_POWER) return NaN;
  const digits = decimal.first * POWERS_OF_TEN[digitCount - PART_DIGITS]! + decimal.second;
  const value = exponent >= 0
    ? digits * POWERS_OF_TEN[exponent]!
    : digits / POWERS_OF_TEN[-exponent]!;
  // Three roundings of half a unit in the last place at most: far less than what FP32 drops, unless the value lies
  // near to the middle between two FP32 numbers.
  const isSure = Math.fround(value * (1 - 2 ** -50)) === Math.fround(value * (1 + 2 ** -50));
  return isSure ? value : composeDouble(decimal);
}

/** 16 to 18 digits: the same in double-double arithmetic, which has more than 100 bits. */
function composeLong({ digitCount, first, second, exponent }: Decimal): number {
  const scale = POWERS_OF_TEN[digitCount - PART_DIGITS]!;
  // first · scale + second as an unevaluated sum of two doubles. Both halves have 15 bits, so the products are exact.
  const upper = (first >> 15) * scale * 32768;
  const lower = (first & 32767) * scale + second;
  const high = upper + lower;
  const low = lower - (high - upper);
  if (exponent === 0) return high;
  const n = exponent > 0 ? exponent : -exponent;
  const power = POWERS_OF_TEN[n]!;
  let main: number;
  let rest: number;
  if (exponent > 0) {
    main = high * power;
    rest = productError(high, n, main) + low * power;
  } else {
    main = high / power;
    const back = main * power;
    rest = ((high - back) - productError(main, n, back) + low) / power;
  }
  // `rest` is good to far more than 40 bits. Where moving it by that much changes the sum, the exact value lies too
  // near to the middle between two doubles.
  const margin = Math.abs(rest) * 2 ** -40;
  const smaller = main + (rest - margin);
  return smaller === main + (rest + margin) ? smaller : NaN;
}

/** factor · 10^n − product, exactly (Dekker). */
function productError(factor: number, n: number, product: number): number {
  const scaled = factor * SPLITTER;
  const high = scaled - (scaled - factor);
  const low = factor - high;
  const powerHigh = POWERS_HIGH[n]!;
  const powerLow = POWERS_LOW[n]!;
  return ((high * powerHigh - product) + high * powerLow + low * powerHigh) + low * powerLow;
}
