import type { OutputForms } from "./http_codec.ts";
import type { InferOutput, InferResponse, ParameterValue, RequestedOutput } from "./infer.ts";
import { writeTensorData } from "./json_tensor_writer.ts";
import type { JsonWriter } from "./json_writer.ts";

/** An encoded response: the JSON first, then the bytes of the binary outputs in the order of the JSON. */
export interface EncodedResponse {
  readonly parts: readonly Uint8Array[];
  /** Length of the JSON when bytes follow it; undefined when it is all there is. */
  readonly headerLength: number | undefined;
}

/**
 * Encodes an infer response (http.md §9.5). Binary outputs are passed on by reference.
 * @throws ServerError when an output cannot be written as JSON.
 */
export function encodeInferResponse(
  response: InferResponse,
  requested: readonly RequestedOutput[],
  { forms, writer }: { readonly forms: OutputForms; readonly writer: JsonWriter },
): EncodedResponse {
  const { outputs } = response;
  const parts: Uint8Array[] = [];
  writer.begin();
  writeHead(writer, response);
  writer.ascii(',"outputs":[');
  for (let index = 0; index < outputs.length; index++) {
    const output = outputs[index]!;
    if (index > 0) writer.byte(0x2c);
    const isBinary = isBinaryOutput(output.name, index, { requested, forms });
    writeOutput(writer, output, isBinary);
    if (isBinary && output.sharedMemory === undefined && output.data.length > 0) {
      parts.push(output.data);
    }
  }
  writer.ascii("]}");
  const json = writer.finish();
  if (parts.length === 0) return { parts: [json], headerLength: undefined };
  parts.unshift(json);
  return { parts, headerLength: json.length };
}

/** Whether the bytes of an output go behind the JSON. */
export function isBinaryOutput(
  name: string,
  index: number,
  { requested, forms }: { requested: readonly RequestedOutput[]; forms: OutputForms },
): boolean {
  if (requested.length === 0) return forms.isBinaryDefault;
  // Outputs usually come in the order they were asked for.
  if (requested[index]?.name === name) return forms.isBinary[index]!;
  const found = requested.findIndex((output) => output.name === name);
  return found < 0 ? forms.isBinaryDefault : forms.isBinary[found]!;
}

/** Everything before the outputs, without the closing brace. */
function writeHead(writer: JsonWriter, response: InferResponse): void {
  if (response.id !== "") {
    writer.ascii('{"id":');
    writer.string(response.id);
    writer.ascii(',"model_name":');
  } else {
    writer.ascii('{"model_name":');
  }
  writer.string(response.modelName);
  writer.ascii(',"model_version":');
  writer.string(response.modelVersion);
  let isFirst = true;
  for (const key in response.parameters) {
    writer.ascii(isFirst ? ',"parameters":{' : ",");
    isFirst = false;
    writer.string(key);
    writer.byte(0x3a);
    writeParameter(writer, response.parameters[key]!);
  }
  if (!isFirst) writer.byte(0x7d);
}

/** Writes a parameter with the kind its JavaScript type stands for. */
export function writeParameter(writer: JsonWriter, value: ParameterValue): void {
  if (typeof value === "string") writer.string(value);
  else if (typeof value === "number") writer.double(value);
  else writer.ascii(String(value));
}

function writeOutput(writer: JsonWriter, output: InferOutput, isBinary: boolean): void {
  writer.ascii('{"name":');
  writer.string(output.name);
  writer.ascii(',"datatype":"');
  writer.ascii(output.datatype);
  writer.ascii('","shape":[');
  const { shape } = output;
  for (let index = 0; index < shape.length; index++) {
    if (index > 0) writer.byte(0x2c);
    writer.integer(shape[index]!);
  }
  if (output.sharedMemory !== undefined) return writer.ascii("]}");
  if (isBinary) {
    writer.ascii('],"parameters":{"binary_data_size":');
    writer.integer(output.data.length);
    return writer.ascii("}}");
  }
  writer.ascii('],"data":');
  writeTensorData(writer, output);
  writer.byte(0x7d);
}
