import { type Datatype, isDatatype } from "./datatype.ts";
import {
  enterArrayField,
  enterObjectField,
  enterTensorParameters,
  readSharedMemoryField,
  readSizeField,
  readStringField,
  type SharedMemoryFields,
  toSharedMemory,
} from "./http_codec_fields.ts";
import type { InferInput } from "./infer.ts";
import type { JsonReader } from "./json_reader.ts";
import { readTensorData } from "./json_tensor_reader.ts";
import { missingMember, wrongType } from "./json_value.ts";
import { ServerError } from "./status.ts";
import { elementCount } from "./tensor.ts";

const NO_BYTES = new Uint8Array(0);
/** Dimensions a shape may have; ONNX and TensorRT stay far below. */
const RANK_MAX = 64;

/** An input as its JSON describes it; the bytes of a binary one are still to be found behind the JSON. */
export interface ParsedInput {
  readonly input: InferInput;
  /** Bytes of the binary block; -1 when the input has another source. */
  readonly binarySize: number;
}

interface InputFields extends SharedMemoryFields {
  readonly maxByteSize: number;
  name: string | undefined;
  datatype: string | undefined;
  shape: number[] | undefined;
  binarySize: number | undefined;
  /** Offset of the value of `data`; -1 = none. */
  dataOffset: number;
  data: Uint8Array | undefined;
  hasParameters: boolean;
}

/** Reads one element of `inputs` (http.md §9.4). `maxByteSize` bounds a tensor that is given as JSON. */
export function readInput(reader: JsonReader, maxByteSize: number): ParsedInput {
  const fields: InputFields = {
    maxByteSize,
    name: undefined,
    datatype: undefined,
    shape: undefined,
    binarySize: undefined,
    dataOffset: -1,
    data: undefined,
    hasParameters: false,
    region: undefined,
    offset: 0,
    byteSize: undefined,
  };
  let key = enterObjectField(reader, "inputs");
  for (; key !== undefined; key = reader.nextKey()) {
    readMember(reader, key, fields);
  }
  const { name, datatype, shape } = fields;
  if (name === undefined) throw missingMember("name");
  if (datatype === undefined) throw missingMember("datatype");
  if (shape === undefined) throw missingMember("shape");
  checkSources(fields);
  if (!isDatatype(datatype)) throw invalidDatatype(name);
  if (fields.binarySize !== undefined) {
    return { input: { name, datatype, shape, data: NO_BYTES }, binarySize: fields.binarySize };
  }
  return { input: toInput(reader, fields, { name, datatype, shape }), binarySize: -1 };
}

function readMember(reader: JsonReader, key: string, fields: InputFields): void {
  if (key === "name" && fields.name === undefined) {
    fields.name = readStringField(reader, key);
  } else if (key === "datatype" && fields.datatype === undefined) {
    fields.datatype = readStringField(reader, key);
  } else if (key === "shape" && fields.shape === undefined) {
    fields.shape = readShape(reader, fields.name ?? "");
  } else if (key === "parameters" && !fields.hasParameters) {
    fields.hasParameters = true;
    readParameters(reader, fields);
  } else if (key === "data" && fields.dataOffset < 0) {
    reader.peek();
    fields.dataOffset = reader.offset;
    const { name, datatype, shape } = fields;
    if (name === undefined || datatype === undefined || shape === undefined) {
      // Comes before what is needed to read it: checked now, read when the object is complete.
      reader.skipValue();
    } else {
      if (!isDatatype(datatype)) throw invalidDatatype(name);
      fields.data = readData(reader, { name, datatype, shape, maxByteSize: fields.maxByteSize });
    }
  } else {
    reader.skipValue();
  }
}

function readParameters(reader: JsonReader, fields: InputFields): void {
  let key = enterTensorParameters(reader);
  for (; key !== undefined; key = reader.nextKey()) {
    if (key === "binary_data_size" && fields.binarySize === undefined) {
      fields.binarySize = readSizeField(reader, key);
    } else if (!readSharedMemoryField(reader, key, fields)) {
      reader.skipValue();
    }
  }
}

interface Description {
  readonly name: string;
  readonly datatype: Datatype;
  readonly shape: number[];
}

/** An input whose data is not behind the JSON. */
function toInput(
  reader: JsonReader,
  fields: InputFields,
  description: Description,
): InferInput {
  const sharedMemory = toSharedMemory(fields);
  if (sharedMemory !== undefined) return { ...description, data: NO_BYTES, sharedMemory };
  if (fields.data === undefined) {
    const resume = reader.offset;
    reader.offset = fields.dataOffset;
    fields.data = readData(reader, { ...description, maxByteSize: fields.maxByteSize });
    reader.offset = resume;
  }
  return { ...description, data: fields.data };
}

function readData(
  reader: JsonReader,
  { name, datatype, shape, maxByteSize }: Description & { readonly maxByteSize: number },
): Uint8Array {
  const count = elementCount(shape, `input '${name}'`);
  if (count === 0) {
    // Whatever is there is ignored, as in the reference.
    reader.skipValue();
    return NO_BYTES;
  }
  return readTensorData(reader, { name, datatype, elementCount: count, maxByteSize });
}

/** Exactly one source of data. */
function checkSources({ dataOffset, binarySize, region }: InputFields): void {
  const count = (dataOffset >= 0 ? 1 : 0) + (binarySize !== undefined ? 1 : 0) +
    (region !== undefined ? 1 : 0);
  if (count === 1) return;
  const given: string[] = [];
  if (dataOffset >= 0) given.push("'data'");
  if (binarySize !== undefined) given.push("'binary_data_size'");
  if (region !== undefined) given.push("'shared_memory_region'");
  throw new ServerError(
    "INVALID_ARG",
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', " +
      "'shared_memory_region' in 'parameters'. But " +
      (given.length === 0 ? "no field is set" : `set ${given.join(" ")}`),
  );
}

function readShape(reader: JsonReader, name: string): number[] {
  const shape: number[] = [];
  let isTooLarge = false;
  let isBeyondInt64 = false;
  reader.peek();
  const start = reader.offset;
  for (let more = enterArrayField(reader, "shape"); more; more = reader.nextElement()) {
    if (reader.kind() !== "number") {
      reader.skipValue();
      throw wrongType("shape", "unsigned-integer");
    }
    reader.readInteger();
    const { number } = reader;
    if (!number.isUint64 || number.isNegative) throw wrongType("shape", "unsigned-integer");
    if (number.digitCount > 15) {
      isTooLarge ||= number.toBigInt() > BigInt(Number.MAX_SAFE_INTEGER);
      isBeyondInt64 ||= !number.isInt64;
    }
    shape.push(number.digitCount > 15 ? Number(number.toBigInt()) : number.shortInteger);
    if (shape.length > RANK_MAX) {
      throw new ServerError(
        "INVALID_ARG",
        `Unable to parse 'shape': more than ${RANK_MAX} dimensions for input '${name}'`,
      );
    }
  }
  if (isTooLarge) {
    const text = new TextDecoder().decode(reader.bytes.subarray(start, reader.offset));
    throw new ServerError(
      "INVALID_ARG",
      `invalid shape for input '${name}': shape ${text.replaceAll(/\s/g, "")} ` +
        (isBeyondInt64
          ? "contains one or more invalid dimensions"
          : "causes total element count to exceed maximum size of 9223372036854775807"),
    );
  }
  return shape;
}

function invalidDatatype(name: string): ServerError {
  return new ServerError("INVALID_ARG", `invalid datatype for input ${name}`);
}
