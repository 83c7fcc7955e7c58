import type { ServerError } from "../../proto/status.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { ModelStatistics } from "../../proto/gen/grpc_service_pb.ts";
import type {
  CancelSignal,
  InferRequest,
  InferResponse,
  TensorDescription,
} from "../../proto/infer.ts";
import type { LogSettingChange, LogSettingValues } from "./options_frontend.ts";
import type { ShownTraceSetting, TraceChange } from "./options_trace.ts";

/** `GET /v2` (http.md §4). */
export interface ServerMetadata {
  readonly name: string;
  readonly version: string;
  readonly extensions: readonly string[];
}

/** `GET /v2/models/M` (http.md §4), and what a frontend must know before it parses a request. */
export interface ModelMetadata {
  /** The model. */
  readonly name: string;
  /** With an explicit version exactly that one, otherwise every READY version ascending. */
  readonly versions: readonly string[];
  /** Platform or backend of the configuration. */
  readonly platform: string;
  /** Inputs in the order of the configuration. */
  readonly inputs: readonly TensorDescription[];
  /** Outputs in the order of the configuration. */
  readonly outputs: readonly TensorDescription[];
  /** 0 = the model does not batch. */
  readonly maxBatchSize: number;
  /** May send any number of responses per request. */
  readonly decoupled: boolean;
}

/** One entry of the repository index (management.md §3.1); absent members are not known. */
export interface ModelIndexEntry {
  /** The model. */
  readonly name: string;
  /** Decimal. */
  readonly version?: string;
  /** State of the version. */
  readonly state?: ModelState;
  /** Why it is not ready, or "". */
  readonly reason?: string;
}

/** States of a model version (management.md §3). */
export type ModelState = "UNKNOWN" | "LOADING" | "READY" | "UNLOADING" | "UNAVAILABLE";

/** Options of one inference call. */
export interface InferOptions {
  /** Aborted when the client has gone or its deadline passed: the request is removed wherever it is. */
  readonly signal?: CancelSignal;
  /** The trace of the request, from `startTrace`; what the core does is noted there. */
  readonly trace?: RequestTrace | undefined;
  /** When a model that promised one response sends more, the first is taken instead of an error (grpc.md §4). */
  readonly takesFirst?: boolean;
  /** A request in flight needs the answer: it is still taken while the server stops. */
  readonly isCall?: boolean;
  /** Responses that come after the signal was aborted are wanted too: the model called decides when it ends. */
  readonly takesAfterAbort?: boolean;
}

/** Options of a load or unload. */
export interface ControlOptions {
  /** A model asks for it: it must not wait for itself without end. */
  readonly isCall?: boolean;
}

/** The trace of a request on its way through a frontend (observability.md §5.3). */
export interface RequestTrace {
  /** Notes a point of time, ms of `traceTime()`; absent = now. */
  mark(activity: string, atMs?: number): void;
  /** The frontend is done with the request; call it once. */
  end(): void;
}

/** One message of a request that may have any number of responses. */
export interface StreamedResponse {
  /** Absent when this is the final flag alone, or an error. */
  readonly response?: InferResponse;
  /** This response failed; others may follow. */
  readonly error?: ServerError;
  /** Nothing comes any more. */
  readonly isFinal: boolean;
}

/**
 * Takes the messages of a stream in order. A promise means "not so fast": the model is asked to wait until it has
 * settled. Must not throw, and the promise must settle when the client has gone as well.
 */
export type ResponseReceiver = (message: StreamedResponse) => Promise<void> | undefined;

/** Where a shared memory region lies. */
export type SharedMemoryKind = "system" | "cuda";

/** A region in a POSIX shared memory object (http.md §6). */
export interface SystemSharedMemoryRegion {
  readonly kind: "system";
  /** Name that requests refer to. */
  readonly name: string;
  /** The object, as in `shm_open`. */
  readonly key: string;
  /** First byte in the object. */
  readonly offset: bigint;
  /** Bytes from there on. */
  readonly byteSize: bigint;
}

/** A region in the memory of a GPU (http.md §6). */
export interface CudaSharedMemoryRegion {
  readonly kind: "cuda";
  /** Name that requests refer to. */
  readonly name: string;
  /** The GPU. */
  readonly deviceId: bigint;
  /** Bytes from the start of the allocation. */
  readonly byteSize: bigint;
}

/** A registered region. */
export type SharedMemoryRegion = SystemSharedMemoryRegion | CudaSharedMemoryRegion;

/**
 * The facade that every frontend and the embedding API use; plain data in and out, nothing to hold on to, so that a
 * frontend may live in another isolate. Every method throws ServerError with the texts of http.md and grpc.md.
 * `version` is the client's text: "" = latest ready, else decimal, or a label of the model.
 */
export interface InferenceApi {
  isLive(): boolean;
  isReady(): boolean;
  /** True once shutdown began: health answers UNAVAILABLE `Server exiting`. */
  isExiting(): boolean;
  /**
   * Throws NOT_FOUND for an unknown model or version, UNAVAILABLE when the version is not READY. A promise when the
   * model itself has a say in it; it never rejects.
   */
  isModelReady(name: string, version: string): boolean | Promise<boolean>;
  serverMetadata(): ServerMetadata;
  /**
   * The version, decimal, that a label means; undefined for a model that has none. Other methods take labels as well.
   * Throws NOT_FOUND for a label that a model with labels does not have.
   */
  versionOfLabel(name: string, label: string): string | undefined;
  modelMetadata(name: string, version: string): ModelMetadata;
  /** `decoupled` of the metadata, at the price of a look-up. */
  isDecoupled(name: string, version: string): boolean;
  modelConfig(name: string, version: string): ModelConfig;
  /** `name` "" = all models; one entry per READY version. */
  modelStatistics(name: string, version: string): ModelStatistics[];
  /** Lists the directories of the repositories anew. */
  repositoryIndex(readyOnly: boolean): Promise<ModelIndexEntry[]>;
  /**
   * Runs one request of a model that is not decoupled. Settles only when the core no longer reads the request's buffers.
   * Classification (http.md §9.6) is applied: such outputs come back as BYTES. An error tells by `isRefusal` that the
   * request was refused before it was queued.
   */
  infer(request: InferRequest, options?: InferOptions): Promise<InferResponse>;
  /**
   * Runs one request of any model, decoupled or not. Every response goes to `receive`, the last with `isFinal` (a
   * model that is not decoupled: exactly one, final). Resolves after the final one, when the core no longer reads the
   * request's buffers. Rejects, and `receive` is never called, when the request was refused or failed before it could
   * answer; `isRefusal` as in `infer`. Call `releaseResponse` for each response.
   */
  inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    options?: InferOptions,
  ): Promise<void>;
  /**
   * Now, in ms, while anything may be traced; 0 while nothing is, so that frontends need not look at a clock then.
   */
  traceTime(): number;
  /**
   * Decides whether a request that just came is traced; undefined = it is not. `fields` are header fields or metadata,
   * names in lower case, where a client's own trace may be told (`traceparent`).
   */
  startTrace(
    model: { readonly name: string; readonly version: string },
    fields: { get(name: string): string | null | undefined },
  ): RequestTrace | undefined;
  /**
   * The trace setting of a model, with "" the global one, after a change if one is given. Throws INVALID_ARG for a
   * model that is not ready and for a change that makes no sense (http.md §7); nothing has changed then.
   */
  traceSetting(model: string, change?: TraceChange): ShownTraceSetting;
  /** The settings of the whole server's log, after a change if one is given. Throws INVALID_ARG. */
  logSettings(change?: LogSettingChange): LogSettingValues;
  /** Tells that every byte of the response was used: its buffers may be reused. Optional, but do call it. */
  releaseResponse(response: InferResponse): void;
  /** Loads or reloads a model in EXPLICIT mode (management.md §5); parameters are `config` and `file:<path>`. */
  loadModel(
    name: string,
    parameters: Readonly<Record<string, string | Uint8Array>>,
    options?: ControlOptions,
  ): Promise<void>;
  unloadModel(
    name: string,
    options: ControlOptions & { readonly unloadDependents: boolean },
  ): Promise<void>;
  /** Throws UNSUPPORTED unless clients may use shared memory. */
  checkSharedMemoryAllowed(): void;
  /** Registered regions of a kind; `name` "" = all, else that one. Throws NOT_FOUND (http.md §6). */
  sharedMemoryStatus(kind: SharedMemoryKind, name: string): SharedMemoryRegion[];
  /** Registers a region, so that requests may name it in place of bytes. */
  registerSystemSharedMemory(region: SystemSharedMemoryRegion): Promise<void>;
  /** The same for GPU memory; `rawHandle` is a `cudaIpcMemHandle_t` of 64 bytes. */
  registerCudaSharedMemory(region: CudaSharedMemoryRegion, rawHandle: Uint8Array): Promise<void>;
  /** Forgets a region, or with "" all of a kind; requests in flight keep its memory until they are done. */
  unregisterSharedMemory(kind: SharedMemoryKind, name: string): void;
}
