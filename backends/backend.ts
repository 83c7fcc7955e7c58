import type { ModelConfig } from "../proto/gen/model_config_pb.ts";
import type { CancelSignal, ParameterValue } from "../proto/infer.ts";
import type { ServerError } from "../proto/status.ts";
import type { Tensor } from "../proto/tensor.ts";
import type { DeviceClass, DeviceMemory, Devices, KindOffer } from "./device_list.ts";
import type { ModelHost, ModelTrace } from "./model_host.ts";
import type { ClientMemoryUse, OutputTargets } from "./output_target.ts";

export {
  CPU_OFFER,
  DEVICE_CLASS_NAMES,
  type DeviceClass,
  type DeviceMemory,
  type Devices,
  type GpuDevice,
  type GpuList,
  type GpuMemory,
  type KindOffer,
  type WebGpuAdapter,
  type WebGpuList,
} from "./device_list.ts";
export {
  type ClientMemoryUse,
  isPlaced,
  type OutputTarget,
  type OutputTargets,
} from "./output_target.ts";
export { DEVICE_PARAMETER, deviceOfGroup } from "./group_device.ts";
export type {
  CallMessage,
  CallOptions,
  CustomMetric,
  CustomMetricFamily,
  MetricKind,
  ModelHost,
  ModelTrace,
} from "./model_host.ts";

/** Where one model instance runs. */
export interface InstancePlacement {
  /** `<group>_<index>`, as in logs and error texts. */
  readonly name: string;
  readonly kind: "KIND_CPU" | "KIND_GPU" | "KIND_MODEL";
  readonly deviceId: number;
  /** The family `deviceId` counts in; absent = CUDA for KIND_GPU, else the CPU. */
  readonly device?: DeviceClass;
}

/** What a backend is told about the model version it loads. */
export interface ModelSource {
  readonly name: string;
  readonly version: number;
  /** Absolute path of `<repository>/<model>`. */
  readonly modelDirectory: string;
  /** Absolute path of `<repository>/<model>/<version>`. */
  readonly versionDirectory: string;
  readonly config: ModelConfig;
}

/** `--backend-config` settings that apply to one backend: global ones overridden by its own. */
export type BackendSettings = ReadonlyMap<string, string>;

/** Where in a user's code a line of the log was written. */
export interface LogPlace {
  /** Name of the file, without folders. */
  readonly file: string;
  readonly line: number;
}

/** Sink for what a backend wants in the server's log. `place`: the user's code, in place of the backend's. */
export interface BackendLog {
  info(message: string, place?: LogPlace): void;
  warning(message: string, place?: LogPlace): void;
  error(message: string, place?: LogPlace): void;
  verbose(level: number, message: string, place?: LogPlace): void;
  /** Whether lines of this level are written now. Absent = never. */
  isVerbose?(level: number): boolean;
}

/** One request of a batch, checked against the configuration; shapes include the batch dimension and `reshape`. */
export interface ExecuteRequest {
  readonly id: string;
  readonly correlationId: bigint | string;
  /** Rows this request contributes: its first dimension, or 1 for models that do not batch. */
  readonly batchSize: number;
  readonly inputs: readonly Tensor[];
  /** Names of the outputs to compute, never empty. */
  readonly outputs: readonly string[];
  /**
   * Where outputs are wanted. An instance with a `memoryUse` may write an output to the start of its target, if that is
   * large enough, and answer with a view of it (`placedOutput`); others are copied there afterwards.
   */
  readonly targets?: OutputTargets | undefined;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  /** Sequence flags of the client; with iterative sequences those of this turn. */
  readonly sequenceStart: boolean;
  readonly sequenceEnd: boolean;
  /** As the client sent them: priority level (0 = default) and queue timeout in microseconds (0 = none). */
  readonly priority: number;
  readonly timeoutUs: number;
  /** Aborted when the client has gone. A backend may stop early when all requests of the batch are aborted. */
  readonly signal: CancelSignal | undefined;
  /** Its trace, to be passed on with calls of other models; undefined when it is not traced. */
  readonly trace?: ModelTrace | undefined;
  /**
   * Sends one response of a request whose outcome is `{ streamed: true }`, during `execute` or after it, until one was
   * sent with `isFinal`; `undefined` as response with `isFinal` is the final flag alone (scheduling.md §11). An error
   * is a response like any other and does not end the request by itself. Inputs stay valid until the final response.
   * Returns a promise when the receiver is slow: wait for it before sending more. It settles, never rejects, also when
   * the client has gone.
   * @throws TypeError after the final response.
   */
  send(response: ExecuteResponse | undefined, isFinal: boolean): Promise<void> | undefined;
}

/**
 * One response: output tensors, or a failure. Shapes include the batch dimension and `reshape`. `outputStartMs` is
 * `now()` when the outputs of a response that is sent began to be collected, for the statistics of responses.
 */
export type ExecuteResponse =
  & { readonly outputStartMs?: number }
  & ExecuteResult;

type ExecuteResult =
  | {
    readonly outputs: readonly Tensor[];
    readonly parameters?: Readonly<Record<string, ParameterValue>>;
    /** Called once when no byte of `outputs` is needed any more; buffers may then be reused. */
    readonly release?: () => void;
  }
  | { readonly error: ServerError };

/**
 * What became of one request: its one response, or word that its responses go through `send`. With `reschedule` the
 * request wants another turn (iterative sequences, scheduling.md §4.1). `states` are the new values of implicit states
 * by the names of their outputs, which a single response carries among its outputs (scheduling.md §3.6).
 */
export type ExecuteOutcome =
  | ExecuteResponse
  | {
    readonly streamed: true;
    readonly reschedule?: boolean;
    readonly states?: readonly Tensor[];
  };

/** Result of one execution: an outcome per request in request order, and two points of time for the statistics. */
export interface ExecuteReport {
  readonly outcomes: readonly ExecuteOutcome[];
  /** `now()` when it began, of a batch that waited behind others ({@linkcode ModelInstance.takesAhead}). */
  readonly startMs?: number;
  /** `now()` when all inputs were in place, and when outputs began to be collected; ms. */
  readonly inputEndMs: number;
  readonly outputStartMs: number;
}

/** One loaded instance. `execute` is never called again before its promise settled, unless `takesAhead` allows it. */
export interface ModelInstance extends AsyncDisposable {
  readonly placement: InstancePlacement;
  /** It will never answer again: whoever loads its version again wants another one. Absent = it may. */
  readonly hasGivenUp?: boolean;
  /** Absent = inputs are brought to memory of this machine for it, and outputs are taken from there. */
  readonly memoryUse?: ClientMemoryUse;
  /**
   * Runs one batch (one or more requests, total rows ≤ max_batch_size). Settles only when no input buffer is in use
   * any more. A rejection fails every request of the batch; prefer outcomes.
   */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport>;
  /**
   * Whether `execute` may be called for this request although earlier calls have not settled: it then runs behind them,
   * so that the instance need not be woken for each. Asked while one runs, and only for the lone instance of a model
   * that runs each request by itself. Absent = never.
   */
  takesAhead?(request: ExecuteRequest): boolean;
  /**
   * The model's own word on whether it is ready, for readiness queries; inference is not blocked by it. Absent = it is.
   * May be called while `execute` runs, concurrent calls may share one answer. Settles within 5 s and never rejects:
   * `reason` tells why not, for the verbose log (python-backend.md §A2).
   */
  isReady?(): Promise<{ readonly isReady: boolean; readonly reason?: string }>;
}

/** One loaded model version; disposing it after its instances frees everything it holds. */
export interface BackendModel extends AsyncDisposable {
  createInstance(placement: InstancePlacement): Promise<ModelInstance>;
}

/** Number of instances per group when the configuration gives none (config.md §5). */
export interface InstancePreference {
  readonly kind: InstancePlacement["kind"];
  readonly count: number;
}

/** A way to execute models. Created once per process by `backends/registry.ts`, lazily. */
export interface Backend extends AsyncDisposable {
  readonly name: string;
  /** The file that `runtime` of a configuration names; absent = `libtriton_<name>.so`, which stands for the backend. */
  readonly runtime?: string | undefined;
  readonly preference: InstancePreference;
  /**
   * The kinds of instances it can make, best first, with what it could make but for something missing. With `source`:
   * of that model. Absent = CPUs only. Never rejects.
   */
  kinds?(devices: Devices, source?: ModelSource): Promise<readonly KindOffer[]>;
  /** Whether it knows what to do with `secondary_devices` of an instance group; absent = no. */
  readonly usesSecondaryDevices?: boolean;
  /**
   * Completes the configuration from the model itself (config.md §8). Changes only `max_batch_size`, `input`,
   * `output`, `model_transaction_policy.decoupled` and the scheduling choice of `source.config`, in place.
   */
  autoComplete(source: ModelSource): Promise<void>;
  /** Opens the model, checks it against the final configuration. Throws ServerError with the texts of config.md §8. */
  openModel(source: ModelSource): Promise<BackendModel>;
}

/** What a backend gets from the process that hosts it. */
export interface BackendContext {
  readonly settings: BackendSettings;
  readonly log: BackendLog;
  /** Monotonic milliseconds with fraction. */
  readonly now: () => number;
  /** Counts batches that failed in the runtime and were run again request by request. */
  readonly countBatchRetry: (modelName: string, version: number) => void;
  /** Other models, model control and metrics, for models that call back. */
  readonly host: ModelHost;
  /** The devices of this machine. Absent = nothing is known of them. */
  readonly devices?: Devices;
  /** Absent = each backend has its own. */
  readonly deviceMemory?: DeviceMemory;
  /** Native calls so short may hold up the event loop of the process. Absent = as the backend thinks best. */
  readonly blockingLimitMs?: number;
}
