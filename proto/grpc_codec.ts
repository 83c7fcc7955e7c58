import { type Datatype, DATATYPES, isDatatype } from "./datatype.ts";
import { decodeContents } from "./grpc_codec_contents.ts";
import {
  checkOutputParameters,
  checkRequestParameters,
  type ParameterMap,
  readParameterEntry,
  sharedMemoryParameters,
} from "./grpc_codec_parameters.ts";
import { unparsable, WireReader } from "./grpc_codec_wire.ts";
import type { InferInput, InferRequest, RequestedOutput } from "./infer.ts";
import { ServerError } from "./status.ts";
import { formatShape } from "./tensor.ts";

/** One `InferInputTensor` as it was sent. */
export interface InputMessage {
  name: string;
  datatype: string;
  /** A bigint stands where a number would not be exact. */
  shape: (number | bigint)[];
  parameters: ParameterMap | undefined;
  /** Encoded `InferTensorContents`; more than one when the field was repeated. */
  contents: Uint8Array[] | undefined;
}

/** One `InferRequestedOutputTensor` as it was sent. */
export interface OutputMessage {
  name: string;
  parameters: ParameterMap | undefined;
}

/** A `ModelInferRequest` as it was sent; bytes are views into the message. */
export interface InferMessage {
  modelName: string;
  modelVersion: string;
  id: string;
  parameters: ParameterMap | undefined;
  readonly inputs: InputMessage[];
  readonly outputs: OutputMessage[];
  readonly rawContents: Uint8Array[];
}

/** Most inputs and most requested outputs of a request. */
export const MAX_TENSORS = 4096;
/** Most fields of a request, and of a tensor in it, those that are unknown or repeated among them. */
const MAX_FIELDS = 65_536;
/** Most dimensions of a tensor. */
export const MAX_RANK = 128;

const NO_BYTES: Uint8Array = new Uint8Array(0);
const NO_HEADERS: readonly (readonly [string, string])[] = [];

/**
 * Parses an encoded `ModelInferRequest` by hand: the generated reader makes an object for every field, and has no
 * bound on their number.
 * @throws ServerError INTERNAL when it is no such message, INVALID_ARG when a bound is passed.
 */
export function parseInferMessage(bytes: Uint8Array): InferMessage {
  const reader = new WireReader(bytes);
  const message: InferMessage = {
    modelName: "",
    modelVersion: "",
    id: "",
    parameters: undefined,
    inputs: [],
    outputs: [],
    rawContents: [],
  };
  for (let count = 0; !reader.done; count++) {
    if (count === MAX_FIELDS) throw tooManyFields();
    const tag = reader.tag();
    switch (tag) {
      case 10:
        message.modelName = reader.string();
        break;
      case 18:
        message.modelVersion = reader.string();
        break;
      case 26:
        message.id = reader.string();
        break;
      case 34:
        message.parameters = readParameterEntry(reader, message.parameters);
        break;
      case 42:
        message.inputs.push(readInput(reader.message()));
        checkCount(message.inputs.length, "inputs");
        break;
      case 50:
        message.outputs.push(readOutput(reader.message()));
        checkCount(message.outputs.length, "outputs");
        break;
      case 58:
        message.rawContents.push(reader.bytes());
        checkCount(message.rawContents.length, "raw_input_contents");
        break;
      default:
        reader.skip(tag);
    }
  }
  return message;
}

function tooManyFields(): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `inference request has more than ${MAX_FIELDS} fields in one message`,
  );
}

function checkCount(count: number, what: string): void {
  if (count <= MAX_TENSORS) return;
  throw new ServerError(
    "INVALID_ARG",
    `inference request has more ${what} than the ${MAX_TENSORS} allowed`,
  );
}

function readInput(reader: WireReader): InputMessage {
  const input: InputMessage = {
    name: "",
    datatype: "",
    shape: [],
    parameters: undefined,
    contents: undefined,
  };
  for (let count = 0; !reader.done; count++) {
    if (count === MAX_FIELDS) throw tooManyFields();
    const tag = reader.tag();
    if (tag === 10) input.name = reader.string();
    else if (tag === 18) input.datatype = reader.string();
    else if (tag === 26) readShape(reader.message(), input.shape);
    else if (tag === 24) addDimension(input.shape, reader.int64());
    else if (tag === 34) input.parameters = readParameterEntry(reader, input.parameters);
    else if (tag === 42) {
      const contents = input.contents ??= [];
      contents.push(reader.bytes());
      if (contents.length > MAX_TENSORS) throw unparsable();
    } else reader.skip(tag);
  }
  return input;
}

function readShape(reader: WireReader, shape: (number | bigint)[]): void {
  while (!reader.done) addDimension(shape, reader.int64());
}

function addDimension(shape: (number | bigint)[], dimension: number | bigint): void {
  if (shape.length === MAX_RANK) {
    throw new ServerError(
      "INVALID_ARG",
      `inference request has an input with more dimensions than the ${MAX_RANK} allowed`,
    );
  }
  shape.push(dimension);
}

function readOutput(reader: WireReader): OutputMessage {
  const output: OutputMessage = { name: "", parameters: undefined };
  for (let count = 0; !reader.done; count++) {
    if (count === MAX_FIELDS) throw tooManyFields();
    const tag = reader.tag();
    if (tag === 10) output.name = reader.string();
    else if (tag === 18) output.parameters = readParameterEntry(reader, output.parameters);
    else reader.skip(tag);
  }
  return output;
}

/**
 * Checks a parsed message and makes the request of it (grpc.md §3.1–3.3). Tensor data are views into the message
 * wherever the wire format allows.
 * @param forwarded Request metadata that become string parameters.
 * @throws ServerError INVALID_ARG with the texts of grpc.md §3.
 */
export function decodeInferRequest(
  message: InferMessage,
  forwarded: readonly (readonly [string, string])[] = NO_HEADERS,
): InferRequest {
  const parameters = checkRequestParameters(message.parameters, forwarded);
  return {
    modelName: message.modelName,
    modelVersion: message.modelVersion,
    id: message.id,
    correlationId: parameters.correlationId,
    sequenceStart: parameters.sequenceStart,
    sequenceEnd: parameters.sequenceEnd,
    priority: parameters.priority,
    timeoutUs: parameters.timeoutUs,
    parameters: parameters.custom,
    inputs: decodeInputs(message),
    outputs: decodeOutputs(message),
  };
}

function decodeInputs(message: InferMessage): InferInput[] {
  const inputs: InferInput[] = [];
  let nextRaw = 0;
  for (const input of message.inputs) {
    const sharedMemory = input.parameters === undefined
      ? undefined
      : sharedMemoryParameters(input.parameters, input.name);
    const datatype = isDatatype(input.datatype) ? input.datatype : undefined;
    let data = NO_BYTES;
    if (sharedMemory !== undefined) checkNoContents(message, input);
    else if (input.contents !== undefined) data = typedData(message, input, datatype);
    else {
      const raw = message.rawContents[nextRaw++];
      if (raw === undefined) throw noData(message, input);
      data = raw;
    }
    const tensor = {
      name: input.name,
      datatype: datatype ?? unknownDatatype(message, input),
      shape: exactShape(message, input),
      data,
    };
    inputs.push(sharedMemory === undefined ? tensor : { ...tensor, sharedMemory });
  }
  return inputs;
}

function checkNoContents(message: InferMessage, input: InputMessage): void {
  if (input.contents === undefined) return;
  throw new ServerError(
    "INVALID_ARG",
    "unexpected 'content' provided when using shared memory for input tensor " +
      `'${input.name}' for model '${message.modelName}'`,
  );
}

function typedData(
  message: InferMessage,
  input: InputMessage,
  datatype: Datatype | undefined,
): Uint8Array {
  if (message.rawContents.length > 0) {
    throw new ServerError(
      "INVALID_ARG",
      `contents field must not be specified when using raw_input_contents for '${input.name}' ` +
        `for model '${message.modelName}'`,
    );
  }
  return decodeContents(input.contents!, datatype, {
    input: input.name,
    model: message.modelName,
  });
}

function noData(message: InferMessage, input: InputMessage): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `unable to find data for input tensor '${input.name}' for model '${message.modelName}' in request.`,
  );
}

function requestPrefix(message: InferMessage): string {
  return `[request id: ${message.id === "" ? "<id_unknown>" : message.id}] `;
}

function unknownDatatype(message: InferMessage, input: InputMessage): never {
  throw new ServerError(
    "INVALID_ARG",
    `${requestPrefix(message)}inference input '${input.name}' data-type is '<invalid>' ` +
      `('${input.datatype}'), but model '${message.modelName}' expects one of ${
        Object.keys(DATATYPES).join(", ")
      }`,
  );
}

function exactShape(message: InferMessage, input: InputMessage): number[] {
  for (const dimension of input.shape) {
    if (typeof dimension === "number") continue;
    const problem = dimension < 0n
      ? "contains one or more invalid dimensions"
      : "causes total element count to exceed maximum size of 9223372036854775807";
    throw new ServerError(
      "INVALID_ARG",
      `${requestPrefix(message)}invalid shape for input '${input.name}' for model ` +
        `'${message.modelName}': shape ${formatShape(input.shape)} ${problem}`,
    );
  }
  return input.shape as number[];
}

function decodeOutputs(message: InferMessage): RequestedOutput[] {
  const outputs: RequestedOutput[] = [];
  for (const output of message.outputs) {
    if (output.parameters === undefined) {
      outputs.push({ name: output.name, classificationCount: 0 });
      continue;
    }
    const { classificationCount, sharedMemory } = checkOutputParameters(
      output.parameters,
      output.name,
    );
    outputs.push(
      sharedMemory === undefined
        ? { name: output.name, classificationCount }
        : { name: output.name, classificationCount, sharedMemory },
    );
  }
  return outputs;
}
