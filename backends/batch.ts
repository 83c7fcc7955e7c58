import { ServerError } from "../proto/status.ts";
import { byteSizeOf, formatShape, type Tensor } from "../proto/tensor.ts";

/** True when rows of `tensors` can be put one behind the other: all dimensions but the first agree. */
export function canJoinRows(tensors: readonly Tensor[]): boolean {
  const first = tensors[0]?.shape ?? [];
  return tensors.every(({ shape }) =>
    shape.length === first.length &&
    shape.every((dim, index) => index === 0 || dim === first[index])
  );
}

/** Shape of joined rows: the first dimensions added up. */
export function joinedShape(tensors: readonly Tensor[]): number[] {
  const shape = [...tensors[0]?.shape ?? []];
  if (shape.length === 0) return shape;
  shape[0] = tensors.reduce((rows, tensor) => rows + (tensor.shape[0] ?? 0), 0);
  return shape;
}

/** Bytes of all tensors together. */
export function joinedByteSize(tensors: readonly Tensor[]): number {
  let size = 0;
  for (const tensor of tensors) size += byteSizeOf(tensor);
  return size;
}

/** Copies the bytes of all tensors one behind the other to the start of `target`. */
export function joinBytes(tensors: readonly Tensor[], target: Uint8Array): void {
  let offset = 0;
  for (const { data } of tensors) {
    target.set(data, offset);
    offset += data.byteLength;
  }
}

/**
 * Checks that an output has a row for every row of the batch.
 * @throws ServerError INTERNAL naming the output.
 */
export function checkOutputRows(name: string, shape: readonly number[], rowCount: number): void {
  const rows = shape[0];
  if (rows !== undefined && rows >= rowCount) return;
  throw new ServerError(
    "INTERNAL",
    `failed to split the output tensor '${name}' in responses: expected batch size of at least ` +
      `${rowCount} in model output, got ${rows ?? `a scalar`} (shape ${formatShape(shape)})`,
  );
}

/**
 * Cuts an output into one tensor per request, without a copy. `shape[0]` counts the rows that `data` holds; rows
 * beyond those of the requests are left out.
 */
export function splitRows(output: Tensor, rowCounts: readonly number[]): Tensor[] {
  const rows = output.shape[0] ?? 0;
  const cut = output.datatype === "BYTES"
    ? bytesRowOffsets(output, rowCounts)
    : fixedRowOffsets(output.data.byteLength, rows, rowCounts);
  return rowCounts.map((count, index) => ({
    name: output.name,
    datatype: output.datatype,
    shape: [count, ...output.shape.slice(1)],
    data: output.data.subarray(cut[index], cut[index + 1]),
  }));
}

function fixedRowOffsets(byteSize: number, rows: number, rowCounts: readonly number[]): number[] {
  const rowSize = rows === 0 ? 0 : byteSize / rows;
  const offsets = [0];
  let offset = 0;
  for (const count of rowCounts) offsets.push(offset += count * rowSize);
  return offsets;
}

function bytesRowOffsets(output: Tensor, rowCounts: readonly number[]): number[] {
  const elementsPerRow = output.shape.slice(1).reduce((product, dim) => product * dim, 1);
  return skipStrings(output.data, rowCounts.map((count) => count * elementsPerRow));
}

/**
 * Byte offsets in a BYTES tensor: before the first element, and behind each group of so many elements.
 * @throws ServerError INTERNAL when the data ends too early.
 */
export function skipStrings(data: Uint8Array, elementCounts: readonly number[]): number[] {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const offsets = [0];
  let offset = 0;
  for (const count of elementCounts) {
    for (let element = 0; element < count; element++) {
      if (offset + 4 > data.byteLength) {
        throw new ServerError("INTERNAL", "BYTES tensor ends inside the length of an element");
      }
      offset += 4 + view.getUint32(offset, true);
    }
    if (offset > data.byteLength) {
      throw new ServerError("INTERNAL", "BYTES tensor ends inside an element");
    }
    offsets.push(offset);
  }
  return offsets;
}
