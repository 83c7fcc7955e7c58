import { enterArrayField, readStringField } from "./http_codec_fields.ts";
import { type ParsedInput, readInput } from "./http_codec_input.ts";
import { type ParsedOutput, readOutput } from "./http_codec_output.ts";
import {
  noParameters,
  readRequestParameters,
  type RequestParameters,
} from "./http_codec_parameters.ts";
import type { InferInput, InferRequest } from "./infer.ts";
import { JsonReader } from "./json_reader.ts";
import { missingMember } from "./json_value.ts";
import { ServerError } from "./status.ts";
import type { StringCache } from "./string_cache.ts";

/** Inputs and outputs one request may have. */
const TENSORS_MAX = 4096;

/** What a request is decoded for. */
export interface InferTarget {
  readonly modelName: string;
  /** As the client gave it; "" = latest. */
  readonly modelVersion: string;
  /** Length of the JSON at the beginning of the body; undefined = all of it. */
  readonly headerLength?: number | undefined;
  /** `--http-max-input-size`. */
  readonly maxInputBytes: number;
  readonly strings?: StringCache | undefined;
}

/** How the outputs of a response are to be written. */
export interface OutputForms {
  /** For outputs that the request does not list. */
  readonly isBinaryDefault: boolean;
  /** For those it lists, in the order of `InferRequest.outputs`. */
  readonly isBinary: readonly boolean[];
}

/** A decoded request. */
export interface DecodedInfer {
  readonly request: InferRequest;
  readonly forms: OutputForms;
}

/** What the JSON of an infer request says; plain data. */
export interface InferDocument {
  readonly id: string;
  readonly parameters: RequestParameters;
  readonly inputs: readonly ParsedInput[];
  readonly outputs: readonly ParsedOutput[];
}

/**
 * Decodes the body of an infer request: JSON, and behind it the blocks of the binary tensor extension (http.md
 * §9.4). Binary inputs are views into `body`.
 * @throws ServerError with the texts of http.md.
 */
export function decodeInferRequest(body: Uint8Array, target: InferTarget): DecodedInfer {
  const headerLength = target.headerLength ?? body.length;
  const json = headerLength === body.length ? body : body.subarray(0, headerLength);
  const document = readInferDocument(json, target);
  return completeInferRequest(document, body, target);
}

/** Reads the JSON of an infer request, tensors in it included. */
export function readInferDocument(
  json: Uint8Array,
  { maxInputBytes, strings }: Pick<InferTarget, "maxInputBytes" | "strings">,
): InferDocument {
  if (json.length > maxInputBytes) throw tooLong(json.length, maxInputBytes);
  return readDocument(new JsonReader(json, strings), maxInputBytes);
}

/** Makes a request of its JSON and of the blocks of its binary inputs, which lie in `body` behind the JSON. */
export function completeInferRequest(
  document: InferDocument,
  body: Uint8Array,
  target: InferTarget,
): DecodedInfer {
  checkNames(document);
  const { parameters } = document;
  return {
    request: {
      modelName: target.modelName,
      modelVersion: target.modelVersion,
      id: document.id,
      correlationId: parameters.correlationId,
      sequenceStart: parameters.sequenceStart,
      sequenceEnd: parameters.sequenceEnd,
      priority: parameters.priority,
      timeoutUs: parameters.timeoutUs,
      parameters: parameters.custom,
      inputs: placeBinaryData(document.inputs, body, target),
      outputs: document.outputs.map((parsed) => parsed.output),
    },
    forms: {
      isBinaryDefault: parameters.isBinaryDefault,
      isBinary: document.outputs.map((parsed) => parsed.isBinary),
    },
  };
}

/** The error of a JSON text that is longer than `--http-max-input-size`. */
export function tooLong(byteSize: number, maxInputBytes: number): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `request JSON size of ${byteSize} bytes exceeds the maximum allowed input size of ` +
      `${maxInputBytes} bytes. Use --http-max-input-size to increase the limit.`,
  );
}

function readDocument(reader: JsonReader, maxInputBytes: number): InferDocument {
  const parameters = noParameters();
  let id: string | undefined;
  let inputs: ParsedInput[] | undefined;
  let outputs: ParsedOutput[] | undefined;
  let hasParameters = false;
  if (reader.kind() !== "object") {
    reader.skipValue();
    reader.finish();
    throw missingMember("inputs");
  }
  for (let key = reader.firstKey(); key !== undefined; key = reader.nextKey()) {
    if (key === "inputs" && inputs === undefined) {
      inputs = readList(reader, key, () => readInput(reader, maxInputBytes));
    } else if (key === "outputs" && outputs === undefined) {
      outputs = readList(reader, key, () => readOutput(reader));
    } else if (key === "id" && id === undefined) {
      id = readStringField(reader, key);
    } else if (key === "parameters" && !hasParameters) {
      hasParameters = true;
      readRequestParameters(reader, parameters);
    } else {
      reader.skipValue();
    }
  }
  reader.finish();
  if (inputs === undefined) throw missingMember("inputs");
  return { id: id ?? "", parameters, inputs, outputs: outputs ?? [] };
}

function readList<T>(reader: JsonReader, what: string, readElement: () => T): T[] {
  const elements: T[] = [];
  for (let more = enterArrayField(reader, what); more; more = reader.nextElement()) {
    if (elements.length === TENSORS_MAX) {
      throw new ServerError("INVALID_ARG", `request has more than ${TENSORS_MAX} ${what}`);
    }
    elements.push(readElement());
  }
  return elements;
}

/** No input and no output twice. */
function checkNames({ id, inputs, outputs }: InferDocument): void {
  const prefix = `[request id: ${id === "" ? "<id_unknown>" : id}]`;
  const input = findRepeated(inputs.length, (index) => inputs[index]!.input.name);
  if (input !== undefined) {
    throw new ServerError("INVALID_ARG", `${prefix} input '${input}' already exists in request`);
  }
  const output = findRepeated(outputs.length, (index) => outputs[index]!.output.name);
  if (output !== undefined) {
    throw new ServerError("INVALID_ARG", `${prefix} output '${output}' already exists in request`);
  }
}

function findRepeated(count: number, nameAt: (index: number) => string): string | undefined {
  if (count < 2) return undefined;
  const seen = new Set<string>();
  for (let index = 0; index < count; index++) {
    const name = nameAt(index);
    if (seen.has(name)) return name;
    seen.add(name);
  }
  return undefined;
}

/** Gives every binary input its block, in the order of the inputs. */
function placeBinaryData(
  parsed: readonly ParsedInput[],
  body: Uint8Array,
  { headerLength, modelName }: InferTarget,
): InferInput[] {
  const inputs: InferInput[] = [];
  let offset = headerLength ?? body.length;
  for (const { input, binarySize } of parsed) {
    if (binarySize < 0) {
      inputs.push(input);
      continue;
    }
    const end = offset + binarySize;
    if (end > body.length) {
      throw new ServerError(
        "INVALID_ARG",
        `unexpected size for input '${input.name}', expecting ${end - body.length} ` +
          `additional bytes for model '${modelName}'`,
      );
    }
    const { name, datatype, shape } = input;
    inputs.push({ name, datatype, shape, data: body.subarray(offset, end) });
    offset = end;
  }
  if (offset !== body.length) {
    throw new ServerError(
      "INVALID_ARG",
      `unexpected additional input data for model '${modelName}'`,
    );
  }
  return inputs;
}
