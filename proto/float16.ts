/** A 16-bit floating point format: how many bits its exponent has, and what follows from that. */
interface Format {
  readonly mantissaBits: number;
  /** Exponent of the smallest normal number. */
  readonly minExponent: number;
  /** Bits of positive infinity. */
  readonly infinity: number;
}

const HALF: Format = { mantissaBits: 10, minExponent: -14, infinity: 0x7c00 };
const BRAIN: Format = { mantissaBits: 7, minExponent: -126, infinity: 0x7f80 };

/** Bits of the FP16 number nearest to `value`, ties to even; too large ones become infinity. */
export function toFloat16Bits(value: number): number {
  return toBits(value, HALF);
}

/** Bits of the BF16 number nearest to `value`, ties to even; too large ones become infinity. */
export function toBfloat16Bits(value: number): number {
  return toBits(value, BRAIN);
}

/** The value of FP16 bits. */
export function fromFloat16Bits(bits: number): number {
  return fromBits(bits, HALF);
}

/** The value of BF16 bits. */
export function fromBfloat16Bits(bits: number): number {
  return fromBits(bits, BRAIN);
}

function toBits(value: number, format: Format): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  if (Number.isNaN(value)) return format.infinity | (1 << (format.mantissaBits - 1));
  const magnitude = Math.abs(value);
  if (magnitude === Infinity) return sign | format.infinity;
  const exponent = Math.max(exponentOf(magnitude), format.minExponent);
  // Exact: a power of two only moves the exponent. The hidden bit of normal numbers lands in the exponent field,
  // and so does a carry out of the mantissa, up to infinity.
  const steps = roundToEven(magnitude * 2 ** (format.mantissaBits - exponent));
  const bits = ((exponent - format.minExponent) << format.mantissaBits) + steps;
  return sign | Math.min(bits, format.infinity);
}

function fromBits(bits: number, format: Format): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const field = (bits & format.infinity) >> format.mantissaBits;
  const mantissa = bits & ((1 << format.mantissaBits) - 1);
  if (field === format.infinity >> format.mantissaBits) return mantissa === 0 ? sign / 0 : NaN;
  const hidden = field === 0 ? 0 : 1 << format.mantissaBits;
  const exponent = format.minExponent + Math.max(field, 1) - 1;
  return sign * (mantissa + hidden) * 2 ** (exponent - format.mantissaBits);
}

/** Floor of the binary logarithm. */
function exponentOf(magnitude: number): number {
  if (magnitude < 2 ** -1022) return -1023;
  const estimate = Math.floor(Math.log2(magnitude));
  if (2 ** estimate > magnitude) return estimate - 1;
  return 2 ** (estimate + 1) <= magnitude ? estimate + 1 : estimate;
}

function roundToEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest < 0.5 || (rest === 0.5 && floor % 2 === 0)) return floor;
  return floor + 1;
}
