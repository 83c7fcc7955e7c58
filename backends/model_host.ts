import type { CancelSignal, InferRequest, InferResponse } from "../proto/infer.ts";
import type { ServerError } from "../proto/status.ts";

/**
 * One message of a call that a model made to another model: a response, an error, or the final flag alone. Buffers
 * of `response` are valid until `release` was called, which must happen once.
 */
export type CallMessage =
  | { readonly response: InferResponse; readonly isFinal: boolean; release(): void }
  | { readonly error: ServerError; readonly isFinal: boolean }
  | { readonly isFinal: true };

/** The trace of a request that a model runs, as far as a model may see it (observability.md §5.3). */
export interface ModelTrace {
  /** The W3C trace context to pass on (`traceparent` and so on, as JSON text); undefined when there is none. */
  readonly context: string | undefined;
  /** Notes an activity of the model's own, ms of `now()`; absent = now. */
  mark(activity: string, atMs?: number): void;
}

/** How a model calls another one. */
export interface CallOptions {
  /** The model takes any number of responses; without it a call of a decoupled model is an error (A9). */
  readonly decoupled: boolean;
  /** Aborted when the caller gave up. */
  readonly signal?: CancelSignal | undefined;
  /** Of the request on whose behalf the call is made: the call becomes a child of it. */
  readonly trace?: ModelTrace | undefined;
}

/** Kinds of metrics that models may have of their own. */
export type MetricKind = "counter" | "gauge" | "histogram";

/** One series. Dispose it when the model drops it: the last owner takes the series off `/metrics`. */
export interface CustomMetric extends Disposable {
  /** Counters (≥ 0) and gauges. @throws ServerError INVALID_ARG or UNSUPPORTED */
  increment(value: number): void;
  /** Gauges. @throws ServerError UNSUPPORTED */
  set(value: number): void;
  /** Histograms. @throws ServerError UNSUPPORTED */
  observe(value: number): void;
  /** Counters and gauges. @throws ServerError UNSUPPORTED */
  value(): number;
}

/** A family of metrics that models made (python-backend.md §A6). Same name and kind = the same family. */
export interface CustomMetricFamily extends Disposable {
  /**
   * A series of the family; same labels = the same series. `buckets`: histograms only, ascending upper bounds.
   * @throws ServerError INVALID_ARG
   */
  metric(labels: Readonly<Record<string, string>>, buckets?: readonly number[]): CustomMetric;
}

/** What a model may ask of the server that runs it. Handed to backends; the core is behind it. */
export interface ModelHost {
  /**
   * Runs a request of another model through its scheduler. Every message goes to `receive`, the last with `isFinal`; a
   * promise that it returns asks the model called to wait. Never rejects; resolves after the final message, when the
   * buffers of `request` are not read any more. Error texts are those of python-backend.md §A9 without its prefix.
   */
  infer(
    request: InferRequest,
    receive: (message: CallMessage) => Promise<void> | undefined,
    options: CallOptions,
  ): Promise<void>;
  /** Ready, and its `isReady` says so. @throws ServerError NOT_FOUND for an unknown model or version. */
  isModelReady(name: string, version: string): Promise<boolean>;
  /** As the repository API: control mode EXPLICIT only. @throws ServerError */
  loadModel(
    name: string,
    parameters: Readonly<Record<string, string | Uint8Array>>,
  ): Promise<void>;
  /** Starts to unload; does not wait for it. @throws ServerError */
  unloadModel(name: string, options: { readonly unloadDependents: boolean }): Promise<void>;
  /** @throws ServerError INVALID_ARG for a bad name, or one that another kind has. */
  openMetricFamily(kind: MetricKind, name: string, description: string): CustomMetricFamily;
}
