/**
 * What a batching strategy (`batching.ts`) may rely on: the functions it exports and what they are handed. It decides,
 * on top of the dynamic batcher's own rules, which requests run together. See docs/custom_batching.md.
 *
 * @module
 */
import type { Datatype } from "../../proto/datatype.ts";
import type { ParameterValue } from "../../proto/infer.ts";

export type { Datatype, ParameterValue };

/** An input of a request. */
export interface BatchInput {
  /** Name of the input. */
  readonly name: string;
  /** Datatype of its elements. */
  readonly datatype: Datatype;
  /** Sizes of the dimensions, the batch first where the model batches. */
  readonly shape: readonly number[];
  /** Bytes of the elements. */
  readonly byteSize: number;
  /** The elements, row-major and little-endian; a view, to be read during the call only and never to be written. */
  readonly data: Uint8Array;
}

/** A request that waits. */
export interface BatchRequest {
  /** The client's id; "" when it gave none. */
  readonly id: string;
  /** 0n or "" = none. */
  readonly correlationId: bigint | string;
  /** Rows that it contributes to a batch. */
  readonly batchSize: number;
  /** Priority level it asked for; 0 = the model's default. */
  readonly priority: number;
  /** Queue timeout it asked for, microseconds; 0 = none. */
  readonly timeoutUs: number;
  /** In the order of the configuration; empty once the request was answered. */
  readonly inputs: readonly BatchInput[];
  /** Names of the outputs to compute. */
  readonly requestedOutputs: readonly string[];
  /** Custom parameters, and forwarded headers. */
  readonly parameters: Readonly<Record<string, ParameterValue>>;
}

/** What a strategy is told about the model version it batches for. */
export interface BatchStrategyContext {
  /** Name of the model. */
  readonly modelName: string;
  /** Its version, decimal. */
  readonly modelVersion: string;
  /** Largest number of rows of a batch; 0 = the model does not batch. */
  readonly maxBatchSize: number;
  /** `parameters` of the configuration as plain texts. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The complete configuration; names as in `config.pbtxt`, 64-bit numbers as decimal texts. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Writes to the server's log. */
  readonly log: BatchStrategyLog;
}

/** The server's log. */
export interface BatchStrategyLog {
  /** Something worth knowing. */
  info(message: string): void;
  /** Something that may go wrong. */
  warning(message: string): void;
  /** Something that went wrong. */
  error(message: string): void;
  /** Written with `--log-verbose` from 1 on. */
  verbose(message: string): void;
}

/**
 * The exports of `batching.ts`. All of them return at once: nothing else happens in the server meanwhile. `Batcher` is
 * what the strategy keeps for the life of a model version, `Batch` what it keeps for a batch being formed.
 */
export interface BatchStrategy<Batch = unknown, Batcher = unknown> {
  /** Once when the model version is loaded. What it throws fails the load, with its `code` (a StatusCode) if it has one. */
  initialize?(context: BatchStrategyContext): Batcher;
  /** A batch begins to be formed. */
  start?(batcher: Batcher): Batch;
  /**
   * True: the request joins the batch. False ends the batch before it. Asked once per request and batch, in the order
   * in which requests would join; a request that not even an empty batch takes runs alone.
   */
  includeRequest(request: BatchRequest, batch: Batch): boolean;
  /**
   * The batch is formed. `requests` run together: those that joined, or fewer where a preferred size ends the batch
   * before; none when the queue changed in a way that the batch is formed anew.
   */
  finish?(batch: Batch, requests: readonly BatchRequest[]): void;
  /** Once when the model version is unloaded. */
  finalize?(batcher: Batcher): void;
}
