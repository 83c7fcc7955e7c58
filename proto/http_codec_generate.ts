import { tooLong } from "./http_codec.ts";
import { readStringField } from "./http_codec_fields.ts";
import { readCustomParameter, setParameter } from "./http_codec_parameters.ts";
import { writeParameter } from "./http_codec_response.ts";
import type {
  InferInput,
  InferRequest,
  InferResponse,
  ParameterValue,
  TensorDescription,
} from "./infer.ts";
import { JsonReader } from "./json_reader.ts";
import { readTensorData } from "./json_tensor_reader.ts";
import { writeElements, writeTensorData } from "./json_tensor_writer.ts";
import type { JsonWriter } from "./json_writer.ts";
import { wrongType } from "./json_value.ts";
import { ServerError } from "./status.ts";
import { elementCount } from "./tensor.ts";

/** Members a generate request may have. */
const MEMBERS_MAX = 4096;

/** What a generate request is decoded for. */
export interface GenerateTarget {
  readonly modelName: string;
  readonly modelVersion: string;
  /** The model's inputs with the shapes of its metadata. */
  readonly inputs: readonly TensorDescription[];
  readonly maxInputBytes: number;
}

/**
 * Decodes the body of a generate request (http.md §10): members with the name of an input become tensors, the others
 * parameters.
 * @throws ServerError with the texts of http.md.
 */
export function decodeGenerateRequest(body: Uint8Array, target: GenerateTarget): InferRequest {
  if (body.length > target.maxInputBytes) throw tooLong(body.length, target.maxInputBytes);
  const reader = new JsonReader(body);
  if (reader.kind() !== "object") {
    reader.skipValue();
    reader.finish();
    throw new ServerError("INVALID_ARG", "attempt to get members for non-object");
  }
  const conversion = new Conversion(reader, target);
  conversion.readMembers(false);
  reader.finish();
  return {
    modelName: target.modelName,
    modelVersion: target.modelVersion,
    id: conversion.id,
    correlationId: 0n,
    sequenceStart: false,
    sequenceEnd: false,
    priority: 0,
    timeoutUs: 0,
    parameters: conversion.parameters,
    inputs: [...conversion.inputs.values()],
    outputs: [],
  };
}

class Conversion {
  id = "";
  readonly parameters: Record<string, ParameterValue> = {};
  readonly inputs = new Map<string, InferInput>();
  readonly #reader: JsonReader;
  readonly #target: GenerateTarget;
  readonly #seen = new Set<string>();
  #byteSize = 0;

  constructor(reader: JsonReader, target: GenerateTarget) {
    this.#reader = reader;
    this.#target = target;
  }

  /** Reads the members of the object that comes next. */
  readMembers(isNested: boolean): void {
    const reader = this.#reader;
    for (let key = reader.firstKey(); key !== undefined; key = reader.nextKey()) {
      const place = isNested ? `parameters/${key}` : key;
      if (this.#seen.has(place)) {
        this.#checkNewInput(key);
        reader.skipValue();
        continue;
      }
      this.#seen.add(place);
      if (this.#seen.size > MEMBERS_MAX) {
        throw new ServerError("INVALID_ARG", `request has more than ${MEMBERS_MAX} members`);
      }
      this.#readMember(key, isNested);
    }
  }

  #readMember(key: string, isNested: boolean): void {
    const description = this.#target.inputs.find((input) => input.name === key);
    if (key === "parameters" && !isNested) return this.#readParameters(description !== undefined);
    if (description !== undefined) return this.#readInput(description);
    if (key === "id" && !isNested) {
      this.id = readStringField(this.#reader, key);
      this.parameters[key] = this.id;
      return;
    }
    setParameter(this.parameters, key, readCustomParameter(this.#reader, key));
  }

  #readParameters(isInput: boolean): void {
    if (isInput) {
      throw new ServerError(
        "INVALID_ARG",
        "Keyword 'parameters' for nested schema also given as input tensor name",
      );
    }
    if (this.#reader.kind() !== "object") {
      this.#reader.skipValue();
      throw new ServerError(
        "INVALID_ARG",
        "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
      );
    }
    try {
      this.readMembers(true);
    } catch (reason) {
      const { code, message } = ServerError.from(reason);
      throw new ServerError(code, `Converting keyword: 'parameters': ${message}`, {
        cause: reason,
      });
    }
  }

  #checkNewInput(name: string): void {
    if (!this.inputs.has(name)) return;
    throw new ServerError(
      "INVALID_ARG",
      `[request id: ${this.id || "<id_unknown>"}] input '${name}' already exists in request`,
    );
  }

  #readInput({ name, datatype, shape: described }: TensorDescription): void {
    this.#checkNewInput(name);
    const { bytes, count } = readAsArray(this.#reader, name);
    const shape = deduceShape(name, described, count);
    const tensor = { name, datatype, elementCount: count, maxByteSize: this.#target.maxInputBytes };
    const data = readTensorData(new JsonReader(bytes), tensor);
    this.#byteSize += data.length;
    if (this.#byteSize > this.#target.maxInputBytes) {
      throw new ServerError(
        "INVALID_ARG",
        `inputs have a byte_size that exceeds the maximum allowed value of ` +
          `${this.#target.maxInputBytes} bytes. Use --http-max-input-size to increase the limit.`,
      );
    }
    this.inputs.set(name, { name, datatype, shape, data });
  }
}

/** The text of the next value as an array, in brackets if it is none, and how many elements it has. */
function readAsArray(reader: JsonReader, name: string): { bytes: Uint8Array; count: number } {
  const isArray = reader.kind() === "array";
  const start = reader.offset;
  if (!isArray) {
    reader.skipValue();
    const bytes = new Uint8Array(reader.offset - start + 2);
    bytes[0] = 0x5b;
    bytes.set(reader.bytes.subarray(start, reader.offset), 1);
    bytes[bytes.length - 1] = 0x5d;
    return { bytes, count: 1 };
  }
  let count = 0;
  for (let more = reader.firstElement(); more; more = reader.nextElement()) {
    if (reader.kind() === "array") throw wrongType(name, "scalar");
    reader.skipValue(1);
    count++;
  }
  return { bytes: reader.bytes.subarray(start, reader.offset), count };
}

/** A shape for `count` elements: fixed dimensions are kept, the innermost variable one takes what is left. */
function deduceShape(name: string, shape: readonly number[], count: number): number[] {
  if (count === 0) return [];
  let rest = count;
  for (const dim of shape) {
    if (dim < 0) continue;
    if (dim === 0 || rest % dim !== 0) throw noShape(name);
    rest /= dim;
  }
  const deduced = [...shape];
  for (let index = deduced.length - 1; index >= 0; index--) {
    if (deduced[index]! >= 0) continue;
    deduced[index] = rest;
    rest = 1;
  }
  if (rest !== 1) throw noShape(name);
  return deduced;
}

function noShape(name: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `The schema can not convert input '${name}' to tensor with proper shape`,
  );
}

/**
 * Encodes the response of a generate request: one object with the parameters and tensors by name, a tensor of one
 * element as the element itself.
 * @throws ServerError when an output cannot be written as JSON.
 */
export function encodeGenerateResponse(response: InferResponse, writer: JsonWriter): Uint8Array {
  const members = new Map<string, () => void>();
  const text = (value: string) => () => writer.string(value);
  if (response.id !== "") members.set("id", text(response.id));
  members.set("model_name", text(response.modelName));
  members.set("model_version", text(response.modelVersion));
  for (const [name, value] of Object.entries(response.parameters)) {
    if (!members.has(name)) members.set(name, () => writeParameter(writer, value));
  }
  for (const output of response.outputs) {
    const isScalar = elementCount(output.shape) === 1;
    const write = isScalar ? writeElements : writeTensorData;
    if (!members.has(output.name)) members.set(output.name, () => write(writer, output));
  }
  writer.begin();
  let separator = "{";
  for (const name of [...members.keys()].sort()) {
    writer.ascii(separator);
    separator = ",";
    writer.string(name);
    writer.byte(0x3a);
    members.get(name)!();
  }
  writer.byte(0x7d);
  return writer.finish();
}
