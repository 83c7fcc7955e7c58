import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";

const LENGTH_BYTES = 4;

/**
 * Views of the elements of BYTES tensors, one behind the other, without their lengths.
 * @throws ServerError INVALID_ARG when the data does not hold exactly `count` elements.
 */
export function stringElements(
  name: string,
  parts: readonly Tensor[],
  count: number,
): Uint8Array[] {
  const elements: Uint8Array[] = [];
  for (const { data } of parts) {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    for (let offset = 0; offset < data.byteLength;) {
      if (offset + LENGTH_BYTES > data.byteLength) throw malformed(name, count);
      const start = offset + LENGTH_BYTES;
      offset = start + view.getUint32(offset, true);
      if (offset > data.byteLength || elements.length === count) throw malformed(name, count);
      elements.push(data.subarray(start, offset));
    }
  }
  if (elements.length !== count) throw malformed(name, count);
  return elements;
}

function malformed(name: string, count: number): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `BYTES data of input '${name}' does not hold the ${count} elements its shape tells`,
  );
}
