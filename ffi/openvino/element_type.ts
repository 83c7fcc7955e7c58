/** Element types of tensors that have whole bytes, in the order in which all versions of the library number them. */
const FIRST_GROUP = ["boolean", "bf16", "f16", "f32", "f64"] as const;
const SIGNED_GROUP = ["i8", "i16", "i32", "i64"] as const;
const UNSIGNED_GROUP = ["u8", "u16", "u32", "u64"] as const;
const LAST_CODE = 32;

/** An element type of the library. */
export type OvElementType =
  | typeof FIRST_GROUP[number]
  | typeof SIGNED_GROUP[number]
  | typeof UNSIGNED_GROUP[number];

const BYTE_SIZES: Readonly<Record<OvElementType, number>> = {
  boolean: 1,
  bf16: 2,
  f16: 2,
  f32: 4,
  f64: 8,
  i8: 1,
  i16: 2,
  i32: 4,
  i64: 8,
  u8: 1,
  u16: 2,
  u32: 4,
  u64: 8,
};

/**
 * Finds the numbers of the element types, which moved from version to version (native-abi.md §4.1), from the sizes of
 * tensors with one element: those with eight bytes are f64, i64 and u64, in this order, and the others stand beside.
 * @throws TypeError when the sizes do not fit.
 */
export function findElementCodes(
  byteSizeOf: (code: number) => number | undefined,
): ReadonlyMap<OvElementType, number> {
  const sizes = Array.from({ length: LAST_CODE }, (_, code) => byteSizeOf(code));
  const codes = new Map<OvElementType, number>();
  let start = 0;
  for (const group of [FIRST_GROUP, SIGNED_GROUP, UNSIGNED_GROUP]) {
    const last = sizes.indexOf(8, start);
    group.forEach((type, index) => {
      const code = last - group.length + 1 + index;
      if (last < 0 || sizes[code] !== BYTE_SIZES[type]) {
        throw new TypeError(
          `Cannot tell the number of element type ${type}: sizes by number are ${sizes.join(" ")}`,
        );
      }
      codes.set(type, code);
    });
    start = last + 1;
  }
  return codes;
}
