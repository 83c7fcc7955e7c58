import { LENGTH_PREFIX_BYTES, readLength } from "./bytes_tensor.ts";
import { DATATYPES } from "./datatype.ts";
import { fromBfloat16Bits, fromFloat16Bits } from "./float16.ts";
import { findInvalidUtf8 } from "./json_string.ts";
import type { JsonWriter } from "./json_writer.ts";
import { ServerError } from "./status.ts";
import type { Tensor } from "./tensor.ts";

const COMMA = 0x2c;

/**
 * Writes the elements of a tensor as a flat JSON array, row-major (http.md §9.5).
 * @throws ServerError when BYTES elements are no text.
 */
export function writeTensorData(writer: JsonWriter, tensor: Tensor): void {
  writer.byte(0x5b);
  writeElements(writer, tensor);
  writer.byte(0x5d);
}

/** The elements alone, with commas between them. */
export function writeElements(writer: JsonWriter, tensor: Tensor): void {
  const { datatype } = tensor;
  if (datatype === "BYTES") return writeStrings(writer, tensor);
  const { byteSize } = DATATYPES[datatype];
  const data = aligned(tensor.data, byteSize);
  const count = data.length / byteSize;
  const { buffer, byteOffset } = data;
  switch (datatype) {
    case "FP32":
      return writeDoubles(writer, new Float32Array(buffer, byteOffset, count));
    case "FP64":
      return writeDoubles(writer, new Float64Array(buffer, byteOffset, count));
    case "FP16":
      return writeHalves(writer, new Uint16Array(buffer, byteOffset, count), fromFloat16Bits);
    case "BF16":
      return writeHalves(writer, new Uint16Array(buffer, byteOffset, count), fromBfloat16Bits);
    case "BOOL":
      return writeBooleans(writer, data);
    case "INT8":
      return writeIntegers(writer, new Int8Array(buffer, byteOffset, count));
    case "INT16":
      return writeIntegers(writer, new Int16Array(buffer, byteOffset, count));
    case "INT32":
      return writeIntegers(writer, new Int32Array(buffer, byteOffset, count));
    case "UINT8":
      return writeIntegers(writer, data);
    case "UINT16":
      return writeIntegers(writer, new Uint16Array(buffer, byteOffset, count));
    case "UINT32":
      return writeIntegers(writer, new Uint32Array(buffer, byteOffset, count));
    case "INT64":
      return writeLongIntegers(writer, new BigInt64Array(buffer, byteOffset, count));
    case "UINT64":
      return writeLongIntegers(writer, new BigUint64Array(buffer, byteOffset, count));
  }
}

/** Typed arrays need an aligned offset; outputs may lie anywhere. */
function aligned(data: Uint8Array, byteSize: number): Uint8Array {
  if (data.length % byteSize !== 0) {
    throw new ServerError(
      "INTERNAL",
      `Output has ${data.length} bytes, which is no multiple of its element size ${byteSize}`,
    );
  }
  return data.byteOffset % byteSize === 0 ? data : data.slice();
}

function writeDoubles(writer: JsonWriter, elements: Float32Array | Float64Array): void {
  for (let index = 0; index < elements.length; index++) {
    if (index > 0) writer.byte(COMMA);
    writer.double(elements[index]!);
  }
}

function writeHalves(
  writer: JsonWriter,
  elements: Uint16Array,
  fromBits: (bits: number) => number,
): void {
  for (let index = 0; index < elements.length; index++) {
    if (index > 0) writer.byte(COMMA);
    writer.double(fromBits(elements[index]!));
  }
}

function writeBooleans(writer: JsonWriter, elements: Uint8Array): void {
  for (let index = 0; index < elements.length; index++) {
    if (index > 0) writer.byte(COMMA);
    writer.ascii(elements[index] === 0 ? "false" : "true");
  }
}

function writeIntegers(
  writer: JsonWriter,
  elements: Int8Array | Int16Array | Int32Array | Uint8Array | Uint16Array | Uint32Array,
): void {
  for (let index = 0; index < elements.length; index++) {
    if (index > 0) writer.byte(COMMA);
    writer.integer(elements[index]!);
  }
}

function writeLongIntegers(writer: JsonWriter, elements: BigInt64Array | BigUint64Array): void {
  for (let index = 0; index < elements.length; index++) {
    if (index > 0) writer.byte(COMMA);
    writer.ascii(String(elements[index]!));
  }
}

function writeStrings(writer: JsonWriter, { name, data }: Tensor): void {
  let offset = 0;
  while (offset < data.length) {
    const start = offset + LENGTH_PREFIX_BYTES;
    const end = start <= data.length ? start + readLength(data, offset) : Infinity;
    if (end > data.length) {
      throw new ServerError("INTERNAL", `Output '${name}' ends inside a BYTES element`);
    }
    if (findInvalidUtf8(data, start, end) >= 0) {
      // To replace what is no text would change the result without a word.
      throw new ServerError(
        "INVALID_ARG",
        `Output '${name}' has a BYTES element that is not UTF-8 text, which JSON cannot hold. ` +
          `Please use the binary data format for output`,
      );
    }
    if (offset > 0) writer.byte(COMMA);
    writer.utf8String(data.subarray(start, end));
    offset = end;
  }
}
