import { ServerError } from "./status.ts";

/** Bytes of the length in front of every element. */
export const LENGTH_PREFIX_BYTES = 4;

/**
 * Encodes BYTES elements: each a uint32 little-endian length and that many bytes. Strings become UTF-8.
 */
export function encodeBytesTensor(elements: readonly (Uint8Array | string)[]): Uint8Array {
  const encoder = new TextEncoder();
  const parts = elements.map((element) =>
    typeof element === "string" ? encoder.encode(element) : element
  );
  const byteSize = parts.reduce((sum, part) => sum + LENGTH_PREFIX_BYTES + part.length, 0);
  const encoded = new Uint8Array(byteSize);
  const view = new DataView(encoded.buffer);
  let offset = 0;
  for (const part of parts) {
    view.setUint32(offset, part.length, true);
    encoded.set(part, offset + LENGTH_PREFIX_BYTES);
    offset += LENGTH_PREFIX_BYTES + part.length;
  }
  return encoded;
}

/**
 * The elements of a BYTES tensor as views into `data`.
 * @throws ServerError INVALID_ARG when a length does not fit into what is left.
 */
export function decodeBytesTensor(data: Uint8Array): Uint8Array[] {
  const elements: Uint8Array[] = [];
  let offset = 0;
  while (offset < data.length) {
    const start = offset + LENGTH_PREFIX_BYTES;
    if (start > data.length) throw incomplete(data.length - offset, "length");
    const end = start + readLength(data, offset);
    if (end > data.length) throw incomplete(data.length - start, "content");
    elements.push(data.subarray(start, end));
    offset = end;
  }
  return elements;
}

/** The uint32 little-endian length at `offset`, which must lie in `data` with its four bytes. */
export function readLength(data: Uint8Array, offset: number): number {
  const high = data[offset + 3]! * 0x100_0000;
  return high + (data[offset + 2]! << 16) + (data[offset + 1]! << 8) + data[offset]!;
}

function incomplete(available: number, what: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `BYTES tensor ends inside the ${what} of an element, only ${available} bytes available`,
  );
}
