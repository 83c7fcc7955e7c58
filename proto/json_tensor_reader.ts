import { LENGTH_PREFIX_BYTES } from "./bytes_tensor.ts";
import { type Datatype, DATATYPES } from "./datatype.ts";
import { toBfloat16Bits, toFloat16Bits } from "./float16.ts";
import { checkDepth, type JsonReader } from "./json_reader.ts";
import { scanString, writeString } from "./json_string.ts";
import { wrongType } from "./json_value.ts";
import { ServerError } from "./status.ts";

const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const QUOTE = 0x22;

/** The tensor that a `data` array is read for. */
export interface JsonTensor {
  readonly name: string;
  readonly datatype: Datatype;
  readonly elementCount: number;
  /** Largest byte size accepted. */
  readonly maxByteSize: number;
}

/**
 * Reads the `data` array that comes next, flat or nested to any shape, straight into the bytes of a tensor
 * (http.md §9.4). Integers that do not fit are cut to their width, as the reference does.
 * @throws ServerError INVALID_ARG for malformed text, elements of a wrong type, or a wrong number of elements.
 */
export function readTensorData(reader: JsonReader, tensor: JsonTensor): Uint8Array {
  if (reader.kind() !== "array") {
    reader.skipValue();
    throw wrongType("data", "array");
  }
  if (tensor.datatype === "BYTES") return readStrings(reader, tensor);
  const { elementCount } = tensor;
  const byteSize = elementCount * DATATYPES[tensor.datatype].byteSize;
  checkByteSize(tensor, byteSize);
  // Every element takes a byte and a comma, so a longer text is needed for a shape that asks for more: nothing is
  // reserved for elements that cannot be there.
  if (elementCount > (reader.end - reader.offset) / 2) throw tooFewElements();
  return readFixed(new ElementCursor(reader), tensor);
}

function readFixed(cursor: ElementCursor, { name, datatype, elementCount }: JsonTensor) {
  switch (datatype) {
    case "FP32":
      return readFloats(cursor, new Float32Array(elementCount));
    case "FP64":
      return readFloats(cursor, new Float64Array(elementCount));
    case "FP16":
    case "BF16":
      return readHalves(cursor, { name, datatype, elements: new Uint16Array(elementCount) });
    case "BOOL":
      return readBooleans(cursor, new Uint8Array(elementCount));
    case "INT8":
      return readIntegers(cursor, new Int8Array(elementCount), true);
    case "INT16":
      return readIntegers(cursor, new Int16Array(elementCount), true);
    case "INT32":
      return readIntegers(cursor, new Int32Array(elementCount), true);
    case "UINT8":
      return readIntegers(cursor, new Uint8Array(elementCount), false);
    case "UINT16":
      return readIntegers(cursor, new Uint16Array(elementCount), false);
    case "UINT32":
      return readIntegers(cursor, new Uint32Array(elementCount), false);
    case "INT64":
      return readLongIntegers(cursor, new Uint32Array(elementCount * 2), true);
    case "UINT64":
      return readLongIntegers(cursor, new Uint32Array(elementCount * 2), false);
    case "BYTES":
      throw new TypeError("BYTES elements have no fixed size");
  }
}

/** Walks through the elements of an array and of the arrays in it, row-major, whatever the nesting. */
class ElementCursor {
  readonly reader: JsonReader;
  #depth = 0;
  #isAfterElement = false;
  #isAfterOpen = false;

  constructor(reader: JsonReader) {
    this.reader = reader;
  }

  /** First byte of the next element, on which the reader then stands; -1 after the last one. */
  next(): number {
    const { reader } = this;
    while (true) {
      let byte = reader.peek();
      if (this.#isAfterElement) {
        if (byte === CLOSE_BRACKET) {
          reader.offset++;
          if (--this.#depth === 0) return -1;
          continue;
        }
        if (byte !== COMMA) {
          reader.fail("Missing a comma or ] after an array element.", reader.offset);
        }
        reader.offset++;
        byte = reader.peek();
        this.#isAfterOpen = false;
      }
      if (byte === OPEN_BRACKET) {
        checkDepth(++this.#depth);
        reader.offset++;
        this.#isAfterOpen = true;
        this.#isAfterElement = false;
        continue;
      }
      if (byte === -1) reader.fail("Invalid value.", reader.offset);
      this.#isAfterElement = true;
      if (byte !== CLOSE_BRACKET || !this.#isAfterOpen) return byte;
      // An empty array: its closing bracket is read by the next turn.
    }
  }

  /** Reads the number the reader stands on; throws when it is something else. */
  readDouble(byte: number, isSingle = false): number {
    if (!beginsNumber(byte)) throw this.mismatch("double");
    return this.reader.readDouble(isSingle);
  }

  /** The same for an integer, which is left in `reader.number`. */
  readInteger(byte: number, isSigned: boolean): void {
    const { number } = this.reader;
    if (beginsNumber(byte)) {
      this.reader.readInteger();
      if (isSigned ? number.isInt64 : number.isUint64) return;
      throw wrongType("data", isSigned ? "signed-integer" : "unsigned-integer");
    }
    throw this.mismatch(isSigned ? "signed-integer" : "unsigned-integer");
  }

  /** The error of an element that is not what the datatype asks for; malformed text goes first. */
  mismatch(type: string): ServerError {
    this.reader.skipValue();
    return wrongType("data", type);
  }
}

function beginsNumber(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || byte === 0x2d || byte === 0x4e || byte === 0x49;
}

function readFloats(cursor: ElementCursor, elements: Float32Array | Float64Array): Uint8Array {
  const isSingle = elements instanceof Float32Array;
  let index = 0;
  for (let byte = cursor.next(); byte !== -1; byte = cursor.next()) {
    if (index === elements.length) throw tooManyElements();
    elements[index++] = cursor.readDouble(byte, isSingle);
  }
  return complete(elements, index);
}

function readIntegers(
  cursor: ElementCursor,
  elements: Int8Array | Int16Array | Int32Array | Uint8Array | Uint16Array | Uint32Array,
  isSigned: boolean,
): Uint8Array {
  const { number } = cursor.reader;
  const words = new Uint32Array(2);
  let index = 0;
  for (let byte = cursor.next(); byte !== -1; byte = cursor.next()) {
    cursor.readInteger(byte, isSigned);
    if (index === elements.length) throw tooManyElements();
    number.writeWords(words, 0);
    elements[index++] = words[0]!;
  }
  return complete(elements, index);
}

function readLongIntegers(
  cursor: ElementCursor,
  words: Uint32Array,
  isSigned: boolean,
): Uint8Array {
  const { number } = cursor.reader;
  let index = 0;
  for (let byte = cursor.next(); byte !== -1; byte = cursor.next()) {
    cursor.readInteger(byte, isSigned);
    if (index === words.length) throw tooManyElements();
    number.writeWords(words, index);
    index += 2;
  }
  return complete(words, index);
}

interface HalfTarget {
  readonly name: string;
  readonly datatype: "FP16" | "BF16";
  readonly elements: Uint16Array;
}

function readHalves(cursor: ElementCursor, { name, datatype, elements }: HalfTarget): Uint8Array {
  const toBits = datatype === "FP16" ? toFloat16Bits : toBfloat16Bits;
  const infinity = toBits(Infinity);
  let index = 0;
  for (let byte = cursor.next(); byte !== -1; byte = cursor.next()) {
    const value = cursor.readDouble(byte);
    if (index === elements.length) throw tooManyElements();
    const bits = toBits(value);
    if ((bits & 0x7fff) === infinity && Number.isFinite(value)) {
      throw new ServerError(
        "INVALID_ARG",
        `Unable to parse 'data': number ${value} of input '${name}' is beyond the range of ` +
          `${datatype}; write Infinity where that is meant`,
      );
    }
    elements[index++] = bits;
  }
  return complete(elements, index);
}

function readBooleans(cursor: ElementCursor, elements: Uint8Array): Uint8Array {
  let index = 0;
  for (let byte = cursor.next(); byte !== -1; byte = cursor.next()) {
    if (byte !== 0x74 && byte !== 0x66) throw cursor.mismatch("boolean");
    if (index === elements.length) throw tooManyElements();
    elements[index++] = cursor.reader.readBoolean() ? 1 : 0;
  }
  return complete(elements, index);
}

/** The number of elements is left to the core, whose message names both counts. */
function readStrings(reader: JsonReader, tensor: JsonTensor): Uint8Array {
  const cursor = new ElementCursor(reader);
  let encoded = new Uint8Array(256);
  let length = 0;
  for (let byte = cursor.next(); byte !== -1; byte = cursor.next()) {
    if (byte !== QUOTE) throw cursor.mismatch("string");
    const span = scanString(reader);
    const needed = length + LENGTH_PREFIX_BYTES + (span.end - span.start);
    if (needed > encoded.length) {
      const grown = new Uint8Array(Math.max(needed, encoded.length * 2));
      grown.set(encoded.subarray(0, length));
      encoded = grown;
    }
    const byteSize = writeString(reader, span, encoded, length + LENGTH_PREFIX_BYTES);
    encoded[length] = byteSize;
    encoded[length + 1] = byteSize >> 8;
    encoded[length + 2] = byteSize >> 16;
    encoded[length + 3] = byteSize >> 24;
    length += LENGTH_PREFIX_BYTES + byteSize;
    checkByteSize(tensor, length);
  }
  return encoded.subarray(0, length);
}

function complete(elements: ArrayBufferView & { length: number }, count: number): Uint8Array {
  if (count < elements.length) throw tooFewElements();
  return new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
}

function checkByteSize({ name, maxByteSize }: JsonTensor, byteSize: number): void {
  if (byteSize <= maxByteSize) return;
  throw new ServerError(
    "INVALID_ARG",
    `JSON input '${name}' has a byte_size (${byteSize} bytes) that exceeds the maximum allowed ` +
      `value of ${maxByteSize} bytes. Use --http-max-input-size to increase the limit.`,
  );
}

function tooManyElements(): ServerError {
  return new ServerError(
    "INVALID_ARG",
    "Unable to parse 'data': Shape does not match true shape of 'data' field",
  );
}

function tooFewElements(): ServerError {
  return new ServerError(
    "INVALID_ARG",
    "Failed to parse 'data' field: shape does not match true shape",
  );
}
