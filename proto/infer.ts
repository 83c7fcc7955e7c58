import type { Tensor } from "./tensor.ts";
import type { Datatype } from "./datatype.ts";

/**
 * A request or response parameter. The JavaScript type carries the protocol's kind:
 * boolean = bool, bigint = int64 or uint64, number = double, string = string.
 */
export type ParameterValue = boolean | bigint | number | string;

/** Where an input or output lies in a registered shared memory region. */
export interface SharedMemoryReference {
  /** Name under which the region was registered. */
  readonly region: string;
  /** First byte in the region. */
  readonly offset: number;
  /** Bytes from there on. */
  readonly byteSize: number;
}

/** An input as a client sent it: its bytes, or the place of its bytes in shared memory. */
export interface InferInput extends Tensor {
  readonly sharedMemory?: SharedMemoryReference;
}

/** An output as a client asked for it. */
export interface RequestedOutput {
  /** The output. */
  readonly name: string;
  /** Number of classes of the classification extension; 0 = plain tensor. */
  readonly classificationCount: number;
  /** Where its bytes are written instead of into the response. */
  readonly sharedMemory?: SharedMemoryReference;
}

/**
 * One inference request, protocol-neutral, plain and structured-cloneable (http.md §9, grpc.md §3).
 * The buffers behind `inputs` belong to the caller and must stay untouched until `infer()` has settled AND every
 * byte of the response was used: outputs may be views into inputs.
 */
export interface InferRequest {
  readonly modelName: string;
  /** Decimal version, or "" for the latest ready one. */
  readonly modelVersion: string;
  /** Request id; "" when the client gave none. */
  readonly id: string;
  /** Correlation id; 0n or "" = none. Numeric and string ids are different keys. */
  readonly correlationId: bigint | string;
  readonly sequenceStart: boolean;
  readonly sequenceEnd: boolean;
  /** Priority level; 0 = the model's default. */
  readonly priority: number;
  /** Queue timeout in microseconds; 0 = none. */
  readonly timeoutUs: number;
  /** Custom parameters, and forwarded headers. Reserved keys are never among them. */
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly inputs: readonly InferInput[];
  /** Empty = all outputs of the configuration. */
  readonly outputs: readonly RequestedOutput[];
}

/** An output tensor; with `sharedMemory` its bytes were written there and `data` is empty. */
export interface InferOutput extends Tensor {
  /** Where the bytes were written. */
  readonly sharedMemory?: SharedMemoryReference;
}

/** One inference response; plain and structured-cloneable. */
export interface InferResponse {
  /** The model that ran. */
  readonly modelName: string;
  /** The version that ran, decimal. */
  readonly modelVersion: string;
  /** Id of the request. */
  readonly id: string;
  /** Parameters that the model gave. */
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  /** The outputs that were asked for. */
  readonly outputs: readonly InferOutput[];
}

/**
 * Tells that nobody waits for an answer any more: the part of an `AbortSignal` that is used on the way of a request,
 * so that a frontend may pass something lighter than one.
 */
export interface CancelSignal {
  /** Whether it has happened. */
  readonly aborted: boolean;
  /** Calls `listener` when it happens. */
  addEventListener(type: "abort", listener: () => void): void;
  /** Ends what `addEventListener` began. */
  removeEventListener(type: "abort", listener: () => void): void;
}

/** Name, datatype and shape of an input or output as metadata shows it (leading -1 when the model batches). */
export interface TensorDescription {
  /** The tensor. */
  readonly name: string;
  /** Datatype of its elements. */
  readonly datatype: Datatype;
  /** -1 = any size. */
  readonly shape: readonly number[];
}
