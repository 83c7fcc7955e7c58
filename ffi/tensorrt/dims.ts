const MAX_RANK = 8;

/** `nvinfer1::Dims` as a result by value. */
export const DIMS_RESULT = {
  32: { struct: ["i32", "i32", "i32", "i32", "i32", "i32", "i32", "i32", "i32"] },
  64: { struct: ["i32", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64"] },
} as const satisfies Record<number, Deno.NativeStructType>;

/** Bytes of a `Dims`. */
export function dimsByteSize(bits: 32 | 64): number {
  return bits === 64 ? 72 : 36;
}

/** Reads a `Dims`; undefined when it is invalid (its number of dimensions is not in [0, 8]). */
export function readDims(bytes: Uint8Array, bits: 32 | 64): number[] | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const rank = view.getInt32(0, true);
  if (rank < 0 || rank > MAX_RANK) return undefined;
  return Array.from(
    { length: rank },
    (_, index) =>
      bits === 64
        ? Number(view.getBigInt64(8 + 8 * index, true))
        : view.getInt32(4 + 4 * index, true),
  );
}

/** Writes a `Dims` into a block of {@linkcode dimsByteSize}. @throws RangeError for more than 8 dimensions. */
export function writeDims(block: Uint8Array, dims: readonly number[], bits: 32 | 64): void {
  if (dims.length > MAX_RANK) {
    throw new RangeError(`Cannot pass a shape of ${dims.length} dimensions: at most 8 are allowed`);
  }
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  view.setInt32(0, dims.length, true);
  dims.forEach((dim, index) => {
    if (bits === 64) view.setBigInt64(8 + 8 * index, BigInt(dim), true);
    else view.setInt32(4 + 4 * index, dim, true);
  });
}
