import type { SharedMemoryReference } from "./infer.ts";
import type { JsonReader } from "./json_reader.ts";
import { missingMember, wrongType } from "./json_value.ts";
import { ServerError } from "./status.ts";

const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);

/** Reads a member that must be a string. */
export function readStringField(reader: JsonReader, what: string): string {
  if (reader.kind() === "string") return reader.readString();
  reader.skipValue();
  throw wrongType(what, "string");
}

/** Reads a member that must be `true` or `false`. */
export function readBooleanField(reader: JsonReader, what: string): boolean {
  if (reader.kind() === "boolean") return reader.readBoolean();
  reader.skipValue();
  throw wrongType(what, "boolean");
}

/** Reads a member that must be a whole number from 0 to 2^64 − 1. */
export function readUnsignedField(reader: JsonReader, what: string): bigint {
  checkUnsigned(reader, what);
  return reader.number.toBigInt();
}

/** The same for a size, offset or count: what no double holds exactly is refused. */
export function readSizeField(reader: JsonReader, what: string): number {
  checkUnsigned(reader, what);
  const { number } = reader;
  if (number.digitCount <= 15) return number.shortInteger;
  const value = number.toBigInt();
  if (value <= MAX_SAFE) return Number(value);
  throw new ServerError("INVALID_ARG", `Unable to parse '${what}': ${value} is out of range`);
}

/** A place in memory: what no double holds exactly is behind the end of everything, and refused as that. */
function readPlaceField(reader: JsonReader, what: string): number {
  const value = readUnsignedField(reader, what);
  return Number(value <= MAX_SAFE ? value : MAX_SAFE);
}

function checkUnsigned(reader: JsonReader, what: string): void {
  if (reader.kind() === "number") {
    reader.readInteger();
    if (reader.number.isUint64 && !reader.number.isNegative) return;
  } else {
    reader.skipValue();
  }
  throw wrongType(what, "unsigned-integer");
}

/** Enters a member that must be an object; for use with `nextKey`. */
export function enterObjectField(reader: JsonReader, what: string): string | undefined {
  if (reader.kind() === "object") return reader.firstKey();
  reader.skipValue();
  throw wrongType(what, "object");
}

/** Enters the `parameters` of an input or output; `null` stands for none, as some clients write it. */
export function enterTensorParameters(reader: JsonReader): string | undefined {
  if (reader.kind() !== "null") return enterObjectField(reader, "parameters");
  reader.skipValue();
  return undefined;
}

/** Enters a member that must be an array; for use with `nextElement`. */
export function enterArrayField(reader: JsonReader, what: string): boolean {
  if (reader.kind() === "array") return reader.firstElement();
  reader.skipValue();
  throw wrongType(what, "array");
}

/** The `shared_memory_*` parameters of an input or output, as they come. */
export interface SharedMemoryFields {
  region: string | undefined;
  offset: number;
  byteSize: number | undefined;
}

/** Reads `key` if it is one of the shared memory parameters; false when it is another one. */
export function readSharedMemoryField(
  reader: JsonReader,
  key: string,
  fields: SharedMemoryFields,
): boolean {
  switch (key) {
    case "shared_memory_region":
      fields.region = readStringField(reader, key);
      return true;
    case "shared_memory_offset":
      fields.offset = readPlaceField(reader, key);
      return true;
    case "shared_memory_byte_size":
      fields.byteSize = readPlaceField(reader, key);
      return true;
    default:
      return false;
  }
}

/** The reference the parameters describe; undefined when no region is named. */
export function toSharedMemory(fields: SharedMemoryFields): SharedMemoryReference | undefined {
  const { region, offset, byteSize } = fields;
  if (region === undefined) return undefined;
  if (byteSize === undefined) throw missingMember("shared_memory_byte_size");
  return { region, offset, byteSize };
}
