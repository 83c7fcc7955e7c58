import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
import type { readStrings, StringRanges } from "../../ffi/onnxruntime/mod.ts";

/**
 * Copies the data of BYTES tensors behind one another and tells where each element lies.
 * @throws ServerError INVALID_ARG when the data does not hold exactly the elements the shapes tell.
 */
export function stringRanges(tensors: readonly Tensor[]): StringRanges {
  let byteSize = 0;
  let count = 0;
  for (const tensor of tensors) {
    byteSize += tensor.data.byteLength;
    count += elementCount(tensor.shape, `input '${tensor.name}'`);
  }
  // Four bytes are the least an element takes: this bounds what the shape alone makes us allocate.
  if (count * 4 > byteSize) throw malformed(tensors[0]);
  const bytes = new Uint8Array(new ArrayBuffer(byteSize + 1));
  const view = new DataView(bytes.buffer);
  const starts = new Float64Array(count);
  const ends = new Float64Array(count);
  let offset = 0;
  let index = 0;
  for (const tensor of tensors) {
    bytes.set(tensor.data, offset);
    const end = offset + tensor.data.byteLength;
    const last = index + elementCount(tensor.shape);
    for (; index < last; index++) {
      if (offset + 4 > end) throw malformed(tensor);
      const start = offset + 4;
      offset = start + view.getUint32(offset, true);
      if (offset > end) throw malformed(tensor);
      starts[index] = start;
      ends[index] = offset;
    }
    if (offset !== end) throw malformed(tensor);
  }
  return { bytes, starts, ends };
}

function malformed(tensor: Tensor | undefined): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `BYTES data of input '${tensor?.name ?? ""}' does not hold the elements its shape tells`,
  );
}

/** BYTES data of the strings the runtime returned: each with its length in front. */
export function encodeStrings(
  { bytes, offsets }: ReturnType<typeof readStrings>,
): Uint8Array<ArrayBuffer> {
  const count = offsets.length - 1;
  const data = new Uint8Array(bytes.byteLength + 4 * count);
  const view = new DataView(data.buffer);
  let position = 0;
  for (let index = 0; index < count; index++) {
    const start = offsets[index] ?? 0;
    const end = offsets[index + 1] ?? start;
    view.setUint32(position, end - start, true);
    data.set(bytes.subarray(start, end), position + 4);
    position += 4 + end - start;
  }
  return data;
}
