import { encodeBytesTensor } from "../../proto/bytes_tensor.ts";
import type { Datatype } from "../../proto/datatype.ts";
import type {
  InferInput,
  InferRequest,
  ParameterValue,
  RequestedOutput,
} from "../../proto/infer.ts";

/** An input tensor of {@linkcode EmbeddedRequest}. */
export interface EmbeddedInput {
  /** The input. */
  readonly name: string;
  /** Datatype of its elements. */
  readonly datatype: Datatype;
  /** Sizes of the dimensions, with the batch dimension where the model batches. */
  readonly shape: readonly number[];
  /** Elements in row-major order: a typed array, their bytes, or texts for BYTES. */
  readonly data: ArrayBufferView | readonly (string | Uint8Array)[];
}

/** One inference request; what is left out has the protocol's default. */
export interface EmbeddedRequest {
  /** The model. */
  readonly modelName: string;
  /** Decimal version; the latest when not given. */
  readonly modelVersion?: string;
  /** Comes back in the response. */
  readonly id?: string;
  /** All inputs that are not optional. */
  readonly inputs: readonly EmbeddedInput[];
  /** Names of the outputs to compute, or more about them; all when not given. */
  readonly outputs?: readonly (string | RequestedOutput)[];
  /** Custom parameters for the model. */
  readonly parameters?: Readonly<Record<string, ParameterValue>>;
  /** Priority level; 0 = the model's default. */
  readonly priority?: number;
  /** Longest wait in the queue in microseconds; 0 = the model's default. */
  readonly timeoutUs?: number;
}

/** The whole request that the facade takes. */
export function completeRequest(request: EmbeddedRequest): InferRequest {
  return {
    modelName: request.modelName,
    modelVersion: request.modelVersion ?? "",
    id: request.id ?? "",
    correlationId: 0n,
    sequenceStart: false,
    sequenceEnd: false,
    priority: request.priority ?? 0,
    timeoutUs: request.timeoutUs ?? 0,
    parameters: request.parameters ?? {},
    inputs: request.inputs.map(completeInput),
    outputs: (request.outputs ?? []).map((output) =>
      typeof output === "string" ? { name: output, classificationCount: 0 } : output
    ),
  };
}

function completeInput(input: EmbeddedInput): InferInput {
  const { name, datatype, shape, data } = input;
  return { name, datatype, shape, data: bytesOf(data) };
}

function bytesOf(data: EmbeddedInput["data"]): Uint8Array {
  if (ArrayBuffer.isView(data)) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  return encodeBytesTensor(data);
}
