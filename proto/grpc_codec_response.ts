import { varintBytes, WireWriter } from "./grpc_codec_wire.ts";
import type { InferResponse, ParameterValue } from "./infer.ts";
import { ServerError } from "./status.ts";

/** Largest message of the protocol. */
export const MAX_MESSAGE_BYTES = 2147483647;

/** Bytes left free at the front of the first part for the message prefix of gRPC. */
export const PREFIX_BYTES = 5;

/** An encoded message in parts; the first {@linkcode PREFIX_BYTES} bytes of the first part are free. */
export interface EncodedMessage {
  readonly parts: Uint8Array[];
  /** Bytes of the message, without the free ones. */
  readonly byteSize: number;
}

/** How a response travels. */
export interface ResponseEncoding {
  /** Inside a `ModelStreamInferResponse`, with the parameter `triton_final_response`. */
  readonly stream: boolean;
  readonly final?: boolean;
}

/** A failed request of a stream. */
export interface StreamFailure {
  readonly message: string;
  readonly id: string;
  /** Given for failures during inference: these name the model and carry `triton_final_response` (grpc.md §4). */
  readonly model?: { readonly name: string; readonly version: string; readonly final: boolean };
}

const FINAL_KEY = "triton_final_response";
// Smaller tensors are copied between the other fields: a part of its own costs more than that.
const MIN_PART_BYTES = 1024;

// Room for the prefix and for the wrapper of a stream response: its tag and a length of up to five bytes.
const FRONT_BYTES = PREFIX_BYTES + 6;

let sharedWriter: WireWriter | undefined;

function openWriter(): WireWriter {
  return sharedWriter ??= new WireWriter();
}

/** Where a tensor goes: behind the small bytes up to `position`. */
interface Cut {
  readonly position: number;
  readonly data: Uint8Array;
}

/**
 * Encodes a response without copying a tensor of any size: the small fields and the lengths come from one buffer, the
 * tensors stand between its pieces by reference. `raw_output_contents` has one entry for each output.
 */
export function encodeInferResponse(
  response: InferResponse,
  encoding: ResponseEncoding,
): EncodedMessage {
  const writer = openWriter();
  const front = writer.start(FRONT_BYTES);
  writer.text(10, response.modelName);
  writer.text(18, response.modelVersion);
  writer.text(26, response.id);
  writeParameters(writer, response.parameters);
  if (encoding.stream) writeParameter(writer, FINAL_KEY, encoding.final ?? true);
  const { outputs } = response;
  for (const output of outputs) {
    writer.byte(42);
    const start = writer.begin();
    writer.text(10, output.name);
    writer.text(18, output.datatype);
    writeShape(writer, output.shape);
    writer.close(start);
  }
  const cuts: Cut[] = [];
  let cutBytes = 0;
  for (const { data } of outputs) {
    writer.byte(50);
    writer.varint(data.length);
    if (data.length < MIN_PART_BYTES) writer.raw(data);
    else {
      cuts.push({ position: writer.position, data });
      cutBytes += data.length;
    }
  }
  const bodyBytes = writer.position - front + cutBytes;
  const start = encoding.stream ? wrap(writer, front, bodyBytes) : front;
  const byteSize = bodyBytes + front - start;
  checkMessageSize(byteSize);
  const small = writer.take(start - PREFIX_BYTES);
  const parts = cuts.length === 0 ? [small] : interleave(small, cuts, start - PREFIX_BYTES);
  return { parts, byteSize };
}

function checkMessageSize(byteSize: number): void {
  if (byteSize <= MAX_MESSAGE_BYTES) return;
  throw new ServerError(
    "INVALID_ARG",
    `Response has byte size ${byteSize} which exceeds gRPC's byte size limit ${MAX_MESSAGE_BYTES}.`,
  );
}

/** Writes tag and length of `ModelStreamInferResponse.infer_response` right in front of it; returns where they start. */
function wrap(writer: WireWriter, front: number, bodyBytes: number): number {
  const end = writer.position;
  const start = front - 1 - varintBytes(bodyBytes);
  writer.position = start;
  writer.byte(18);
  writer.varint(bodyBytes);
  writer.position = end;
  return start;
}

function interleave(small: Uint8Array, cuts: readonly Cut[], offset: number): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let from = 0;
  for (const { position, data } of cuts) {
    const to = position - offset;
    parts.push(small.subarray(from, to), data);
    from = to;
  }
  if (from < small.length) parts.push(small.subarray(from));
  return parts;
}

function writeParameters(
  writer: WireWriter,
  parameters: Readonly<Record<string, ParameterValue>>,
): void {
  for (const key in parameters) {
    if (Object.hasOwn(parameters, key)) writeParameter(writer, key, parameters[key]!);
  }
}

function writeParameter(writer: WireWriter, key: string, value: ParameterValue): void {
  writer.byte(34);
  const entry = writer.begin();
  writer.text(10, key, true);
  writer.byte(18);
  const parameter = writer.begin();
  if (typeof value === "boolean") {
    writer.byte(8);
    writer.byte(value ? 1 : 0);
  } else if (typeof value === "bigint") {
    writer.byte(16);
    writer.int64(value);
  } else if (typeof value === "number") {
    writer.byte(33);
    writer.double(value);
  } else writer.text(26, value, true);
  writer.close(parameter);
  writer.close(entry);
}

function writeShape(writer: WireWriter, shape: readonly number[]): void {
  if (shape.length === 0) return;
  writer.byte(26);
  const start = writer.begin();
  for (const dimension of shape) writer.int64(dimension);
  writer.close(start);
}

/** Encodes the message that tells of a failed request on a stream (grpc.md §4). */
export function encodeStreamFailure(failure: StreamFailure): EncodedMessage {
  const writer = openWriter();
  const front = writer.start(FRONT_BYTES);
  writer.text(10, failure.message);
  writer.byte(18);
  const start = writer.begin();
  if (failure.model !== undefined) {
    writer.text(10, failure.model.name);
    writer.text(18, failure.model.version);
  }
  writer.text(26, failure.id);
  if (failure.model !== undefined) writeParameter(writer, FINAL_KEY, failure.model.final);
  writer.close(start);
  const part = writer.take(front - PREFIX_BYTES);
  return { parts: [part], byteSize: part.length - PREFIX_BYTES };
}
