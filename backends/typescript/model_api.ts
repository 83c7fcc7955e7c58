/**
 * What a model written in TypeScript (`1/model.ts`) may rely on: the class that it exports and everything it is handed.
 * Models import types from here and nothing else (`import type`): what they need at run time comes with
 * {@linkcode ModelContext} and {@linkcode InferRequest}.
 *
 * @module
 */
import type { Datatype } from "../../proto/datatype.ts";
import type { ParameterValue } from "../../proto/infer.ts";
import type { StatusCode } from "../../proto/status.ts";
import type { ModelConfigBuilder, ModelConfigObject } from "./model_config_api.ts";

export type {
  ConfigTensor,
  ModelConfigBuilder,
  ModelConfigObject,
  NewConfigTensor,
} from "./model_config_api.ts";
export type { Datatype, ParameterValue, StatusCode };

/** Elements of a BYTES tensor, decoded when they are asked for. */
export interface BytesElements extends Iterable<Uint8Array> {
  /** Number of elements. */
  readonly length: number;
  /** Element `index` as it came, a view. @throws RangeError for an index outside. */
  bytes(index: number): Uint8Array;
  /** Element `index` as UTF-8 text. @throws RangeError for an index outside. */
  text(index: number): string;
  /** All elements as UTF-8 texts. */
  texts(): string[];
}

/** The array behind a tensor, by its datatype. BF16 has the bits: the upper half of an FP32. */
export interface TensorArrays {
  /** 0 or 1 per element. */
  BOOL: Uint8Array;
  /** Elements of UINT8. */
  UINT8: Uint8Array;
  /** Elements of UINT16. */
  UINT16: Uint16Array;
  /** Elements of UINT32. */
  UINT32: Uint32Array;
  /** Elements of UINT64. */
  UINT64: BigUint64Array;
  /** Elements of INT8. */
  INT8: Int8Array;
  /** Elements of INT16. */
  INT16: Int16Array;
  /** Elements of INT32. */
  INT32: Int32Array;
  /** Elements of INT64. */
  INT64: BigInt64Array;
  /** Elements of FP16. */
  FP16: Float16Array;
  /** Elements of FP32. */
  FP32: Float32Array;
  /** Elements of FP64. */
  FP64: Float64Array;
  /** Texts or byte strings. */
  BYTES: BytesElements;
  /** The bits of each element. */
  BF16: Uint16Array;
}

/** A tensor of one datatype. */
export interface TensorOf<Type extends Datatype> {
  /** The datatype of the elements. */
  readonly datatype: Type;
  /** Sizes of the dimensions, the batch first where the model batches; `[]` = one element. */
  readonly shape: readonly number[];
  /** The elements, row-major. A view into memory shared with the server: good until the request was answered. */
  readonly data: TensorArrays[Type];
}

/** A tensor that a model receives; `datatype` tells the kind of `data`. */
export type ModelTensor = { [Type in Datatype]: TensorOf<Type> }[Datatype];

/** Arrays that an output may have; texts and byte strings are BYTES. */
export type OutputArray =
  | TensorArrays[Datatype]
  | readonly string[]
  | readonly Uint8Array[]
  | readonly (string | Uint8Array)[];

/** A tensor that a model gives. */
export interface OutputTensor {
  /** Absent = as configured where `data` fits that, else by the kind of `data`. */
  readonly datatype?: Datatype;
  /** Sizes of the dimensions, the batch first where the model batches. */
  readonly shape: readonly number[];
  /** The elements, row-major. */
  readonly data: OutputArray;
}

/** An error with a code: made by `ctx.error()`, or any Error with such a `code`. Without a code it is INTERNAL. */
export type ModelError = Error & { readonly code?: StatusCode };

/** One response: outputs by name, or an error. Outputs that were not asked for are dropped. */
export type InferResponse =
  | {
    readonly outputs: Readonly<Record<string, OutputTensor>>;
    /** Parameters of the response: boolean, bigint (int64), number (double) or string. */
    readonly parameters?: Readonly<Record<string, ParameterValue>>;
    readonly error?: undefined;
  }
  | { readonly error: ModelError; readonly outputs?: undefined };

/** A trace that goes on in a model. */
export interface RequestTrace {
  /** The W3C trace context as JSON text; undefined when there is none. */
  readonly context: string | undefined;
  /** Notes an activity of the model's own, now. */
  mark(activity: string): void;
}

/** One request of a batch. */
export interface InferRequest {
  /** The client's id; "" when it gave none. */
  readonly id: string;
  /** Of a sequence; 0n or "" = none. */
  readonly correlationId: bigint | string;
  /** First request of its sequence. */
  readonly sequenceStart: boolean;
  /** Last request of its sequence. */
  readonly sequenceEnd: boolean;
  /** Priority level; 0 = the model's default. */
  readonly priority: number;
  /** Queue timeout in microseconds; 0 = none. */
  readonly timeoutUs: number;
  /** Rows that the request contributes to a batch; 1 for models that do not batch. */
  readonly batchSize: number;
  /** By name; optional inputs may be absent. */
  readonly inputs: Readonly<Record<string, ModelTensor>>;
  /** Names of the outputs to compute, never empty. */
  readonly requestedOutputs: readonly string[];
  /** Custom parameters, and forwarded headers. */
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  /** Undefined when the request is not traced. */
  readonly trace: RequestTrace | undefined;
  /** Aborted when nobody waits for an answer any more. */
  readonly signal: AbortSignal;
  /** The input of that name and datatype. @throws Error INVALID_ARG when it is absent or of another datatype. */
  input<Type extends Datatype>(name: string, datatype: Type): TensorOf<Type>;
  /**
   * Sends a response apart from the return of `execute`, which then has `undefined` for this request. `isFinal` (the
   * default for models that are not decoupled) ends the request; `undefined` with `isFinal` is the final flag alone.
   * Resolves when more may be sent. Works after `execute` returned.
   * @throws Error INVALID_ARG after the final response, and for a second one of a model that is not decoupled.
   */
  send(
    response: InferResponse | undefined,
    options?: { readonly isFinal?: boolean },
  ): Promise<void>;
  /** Asks for another turn (iterative sequences); `execute` has `undefined` for this request. */
  reschedule(): void;
  /** `ctx.infer` on behalf of this request: its trace goes on, and the call is given up with it. */
  infer(modelName: string, call: ModelCall): Promise<CallResult>;
  /** `ctx.inferStream` on behalf of this request. */
  inferStream(modelName: string, call: ModelCall): AsyncIterableIterator<CallResult>;
}

/** A request of another model. */
export interface ModelCall {
  /** Its inputs by name. */
  readonly inputs: Readonly<Record<string, OutputTensor>>;
  /** Names of the outputs wanted; absent or empty = all. */
  readonly outputs?: readonly string[];
  /** Decimal; absent = the latest ready one. */
  readonly modelVersion?: string;
  /** Id of the request. */
  readonly id?: string;
  /** Sequence that it belongs to. */
  readonly correlationId?: bigint | string;
  /** First request of its sequence. */
  readonly sequenceStart?: boolean;
  /** Last request of its sequence. */
  readonly sequenceEnd?: boolean;
  /** Priority level; absent = the model's default. */
  readonly priority?: number;
  /** Queue timeout in microseconds. */
  readonly timeoutUs?: number;
  /** Custom parameters. */
  readonly parameters?: Readonly<Record<string, ParameterValue>>;
  /** Gives the call up. */
  readonly signal?: AbortSignal;
}

/** A response of another model; its arrays are the caller's own. */
export interface CallResult {
  /** Name of the model. */
  readonly modelName: string;
  /** Its version, decimal. */
  readonly modelVersion: string;
  /** Id of the request. */
  readonly id: string;
  /** Its outputs by name. */
  readonly outputs: Readonly<Record<string, ModelTensor>>;
  /** Parameters that the model gave. */
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  /** The output of that name and datatype. @throws Error INTERNAL when it is absent or of another datatype. */
  output<Type extends Datatype>(name: string, datatype: Type): TensorOf<Type>;
}

/** Writes to the server's log, with file and line of the model. */
export interface ModelLog {
  /** For what is worth to know. */
  info(message: string): void;
  /** For what may be wrong. */
  warning(message: string): void;
  /** For what is wrong. */
  error(message: string): void;
  /** Written with `--log-verbose` from 1 on. */
  verbose(message: string): void;
}

/** One series. Values are seen on `/metrics` under the names given. */
export interface ModelMetric extends Disposable {
  /** Counters (≥ 0) and gauges. */
  increment(value: number): void;
  /** Gauges. */
  set(value: number): void;
  /** Histograms. */
  observe(value: number): void;
  /** Counters and gauges. */
  value(): Promise<number>;
}

/** A family of metrics. Same name and kind = the same family, in all models. */
export interface ModelMetricFamily extends Disposable {
  /** A series; same labels = the same series. `buckets`: histograms only, ascending upper bounds. */
  metric(
    labels?: Readonly<Record<string, string>>,
    options?: { readonly buckets?: readonly number[] },
  ): Promise<ModelMetric>;
}

/** Makes metrics of a model's own; wrong names, kinds, labels and buckets reject with INVALID_ARG. */
export interface ModelMetrics {
  /** Opens a family of counters. */
  counter(name: string, description: string): Promise<ModelMetricFamily>;
  /** Opens a family of gauges. */
  gauge(name: string, description: string): Promise<ModelMetricFamily>;
  /** Opens a family of histograms. */
  histogram(name: string, description: string): Promise<ModelMetricFamily>;
}

/** What an instance of a model gets from the server that runs it. */
export interface ModelContext {
  /** Name of the model. */
  readonly modelName: string;
  /** Its version, decimal. */
  readonly modelVersion: string;
  /** `<group>_<index>`, as in logs and error texts. */
  readonly instanceName: string;
  /** Where the instance runs. */
  readonly instanceKind: "CPU" | "GPU" | "MODEL";
  /** The device; 0 on CPUs. */
  readonly deviceId: number;
  /** Absolute paths of `<repository>/<model>` and of its version; files in them may be read. */
  readonly modelDirectory: string;
  /** Absolute path of the version. */
  readonly versionDirectory: string;
  /** The configuration, completed; names as in `config.pbtxt`. */
  readonly config: ModelConfigObject;
  /** `parameters` of the configuration as plain texts. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The server's log. */
  readonly log: ModelLog;
  /** Metrics of the model's own. */
  readonly metrics: ModelMetrics;
  /** An error with a code, to be thrown or to be put into a response. */
  error(code: StatusCode, message: string): ModelError;
  /**
   * Runs a request of another model through its scheduler. Not during `initialize`.
   * @throws Error with the code and text of the failure.
   */
  infer(modelName: string, call: ModelCall): Promise<CallResult>;
  /** The same for any number of responses (decoupled models). Leaving the loop gives the call up. */
  inferStream(modelName: string, call: ModelCall): AsyncIterableIterator<CallResult>;
  /** Loads a model (control mode EXPLICIT); `files`: `file:1/model.onnx` → content, with `config` (JSON) only. */
  loadModel(
    modelName: string,
    options?: {
      readonly config?: string;
      readonly files?: Readonly<Record<string, Uint8Array>>;
    },
  ): Promise<void>;
  /** Starts to unload a model; does not wait for it. */
  unloadModel(modelName: string, options?: { readonly unloadDependents?: boolean }): Promise<void>;
  /** Whether a model answers requests, by its own word as well. @throws Error NOT_FOUND when there is none. */
  isModelReady(modelName: string, modelVersion?: string): Promise<boolean>;
  /** Inputs of all requests, joined along the first dimension. @throws Error INVALID_ARG when they do not fit. */
  concat<Type extends Datatype>(
    requests: readonly InferRequest[],
    name: string,
    datatype: Type,
  ): TensorOf<Type>;
  /** Cuts a tensor along the first dimension into the rows of each request, views of it. */
  split(tensor: OutputTensor, requests: readonly InferRequest[]): OutputTensor[];
  /** A tensor of zeros that reaches the client without a copy in between. It may be in one response only. */
  alloc<Type extends Exclude<Datatype, "BYTES">>(
    datatype: Type,
    shape: readonly number[],
  ): TensorOf<Type>;
}

/** What the default export of `model.ts` constructs: one object per instance. */
export interface Model {
  /** Called once; the model is ready when it has resolved. Throwing fails the load. */
  initialize?(context: ModelContext): void | Promise<void>;
  /**
   * One batch, never a second one before this has settled. One response per request in their order; `undefined` for a
   * request that is answered through `send` or that was rescheduled. Throwing fails every request of the batch.
   */
  execute?(
    requests: readonly InferRequest[],
    context: ModelContext,
  ): ModelAnswers | Promise<ModelAnswers>;
  /** Of decoupled models without `execute`: each response that it yields is sent, its end is the final flag. */
  stream?(
    request: InferRequest,
    context: ModelContext,
  ): AsyncIterable<InferResponse> | Iterable<InferResponse>;
  /** Asked by readiness queries, within 5 s; absent = ready. */
  isReady?(): boolean | Promise<boolean>;
  /** Called once before the instance ends. */
  finalize?(): void | Promise<void>;
}

/** What `execute` returns; `undefined` as a whole = all are answered through `send`. */
export type ModelAnswers = readonly (InferResponse | undefined)[] | undefined | void;

/** The default export of `model.ts`; `export default class M implements Model` fits. */
export interface ModelClass {
  /** Called once per instance. */
  new (): Model;
  /** Completes the configuration at load, in a Worker of its own. */
  autoCompleteConfig?(
    config: ModelConfigBuilder,
  ): ModelConfigBuilder | void | Promise<ModelConfigBuilder | void>;
}
