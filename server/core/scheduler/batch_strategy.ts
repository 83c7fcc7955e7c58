import type { BatchRequest } from "../batch_strategy_api.ts";

/** A loaded batching strategy of one model version; whoever loaded it disposes it after the scheduler. */
export interface LoadedBatchStrategy extends Disposable {
  /** May throw, as the next two: they are the user's code. */
  start(): unknown;
  includeRequest(request: BatchRequest, batch: unknown): unknown;
  finish(batch: unknown, requests: readonly BatchRequest[]): unknown;
  /** Tells the log that a call failed; bounded in number. */
  tellFailure(call: "start" | "includeRequest" | "finish", reason: unknown): void;
}
