import {
  enterObjectField,
  enterTensorParameters,
  readBooleanField,
  readSharedMemoryField,
  readSizeField,
  readStringField,
  type SharedMemoryFields,
  toSharedMemory,
} from "./http_codec_fields.ts";
import type { RequestedOutput } from "./infer.ts";
import type { JsonReader } from "./json_reader.ts";
import { missingMember } from "./json_value.ts";
import { ServerError } from "./status.ts";

/** An output as the request lists it. */
export interface ParsedOutput {
  readonly output: RequestedOutput;
  /** The client wants its bytes behind the JSON. */
  readonly isBinary: boolean;
}

interface OutputFields extends SharedMemoryFields {
  isBinary: boolean;
  classificationCount: number;
}

/** Reads one element of `outputs` (http.md §9.4). */
export function readOutput(reader: JsonReader): ParsedOutput {
  let name: string | undefined;
  let hasParameters = false;
  const fields: OutputFields = {
    isBinary: false,
    classificationCount: 0,
    region: undefined,
    offset: 0,
    byteSize: undefined,
  };
  let key = enterObjectField(reader, "outputs");
  for (; key !== undefined; key = reader.nextKey()) {
    if (key === "name" && name === undefined) {
      name = readStringField(reader, key);
    } else if (key === "parameters" && !hasParameters) {
      hasParameters = true;
      readParameters(reader, fields);
    } else {
      reader.skipValue();
    }
  }
  if (name === undefined) throw missingMember("name");
  const { isBinary, classificationCount } = fields;
  const sharedMemory = toSharedMemory(fields);
  if (sharedMemory === undefined) return { output: { name, classificationCount }, isBinary };
  if (classificationCount > 0) throw conflict("classification");
  if (isBinary) throw conflict("binary_data");
  return { output: { name, classificationCount, sharedMemory }, isBinary };
}

function readParameters(reader: JsonReader, fields: OutputFields): void {
  let key = enterTensorParameters(reader);
  for (; key !== undefined; key = reader.nextKey()) {
    if (key === "binary_data") fields.isBinary = readBooleanField(reader, key);
    else if (key === "classification") fields.classificationCount = readSizeField(reader, key);
    else if (!readSharedMemoryField(reader, key, fields)) reader.skipValue();
  }
}

function conflict(what: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `Output can't set both 'shared_memory_region' and '${what}'`,
  );
}
