/** BYTES data that cannot be given to the runtime as strings. */
export class StringTensorError extends Error {
  override readonly name = "StringTensorError";
}

const decoder = () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * The elements of BYTES data as the runtime's strings.
 * @throws StringTensorError when it does not hold exactly `count` elements, or for an element that the runtime for the
 * web cannot hold: its strings are UTF-8 and end at the first byte 0.
 */
export function decodeStrings(data: Uint8Array, count: number): string[] {
  // Four bytes are the least an element takes: this bounds what the shape alone makes us allocate.
  if (count * 4 > data.byteLength) throw malformed();
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const texts = decoder();
  const elements: string[] = [];
  let offset = 0;
  for (let index = 0; index < count; index++) {
    if (offset + 4 > data.byteLength) throw malformed();
    const start = offset + 4;
    offset = start + view.getUint32(offset, true);
    if (offset > data.byteLength) throw malformed();
    elements.push(decodeElement(texts, data.subarray(start, offset), index));
  }
  if (offset !== data.byteLength) throw malformed();
  return elements;
}

function decodeElement(texts: TextDecoder, bytes: Uint8Array, index: number): string {
  if (bytes.includes(0)) throw unsuitable(index, "holds a byte 0");
  try {
    return texts.decode(bytes);
  } catch {
    throw unsuitable(index, "is not UTF-8");
  }
}

function malformed(): StringTensorError {
  return new StringTensorError("does not hold the elements its shape tells");
}

function unsuitable(index: number, what: string): StringTensorError {
  return new StringTensorError(
    `has an element (number ${index}) that ${what}: onnxruntime-web takes texts only, the native ` +
      "runtime takes any bytes",
  );
}

/** The runtime's strings as BYTES data: each with its length in front. */
export function encodeStrings(elements: readonly string[]): ArrayBuffer {
  const encoder = new TextEncoder();
  const parts = elements.map((element) => encoder.encode(element));
  const data = new Uint8Array(parts.reduce((size, part) => size + 4 + part.byteLength, 0));
  const view = new DataView(data.buffer);
  let offset = 0;
  for (const part of parts) {
    view.setUint32(offset, part.byteLength, true);
    data.set(part, offset + 4);
    offset += 4 + part.byteLength;
  }
  return data.buffer;
}
