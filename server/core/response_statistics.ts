import { create } from "@bufbuild/protobuf";
import type { ExecuteResponse } from "../../backends/backend.ts";
import {
  type InferResponseStatistics,
  InferResponseStatisticsSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { type DurationCount, durationMessage } from "./duration_count.ts";

/** Responses of a request that are counted apart; those behind them are not counted here. */
export const MAX_COUNTED_RESPONSES = 1024;

/** What is counted for all responses of one index. */
type ResponseCounts = Record<
  "computeInfer" | "computeOutput" | "success" | "fail" | "emptyResponse" | "cancel",
  DurationCount
>;

/** One response as its model sent it, ms. */
export interface ResponseTimes {
  readonly startMs: number;
  readonly endMs: number;
}

/** Counts the responses of a decoupled model by their index within the request (observability.md §3.3). */
export class ResponseStatistics {
  readonly #counts: ResponseCounts[] = [];

  /** `isCancelled` = the client had gone, and the response only says so. */
  count(
    index: number,
    response: ExecuteResponse | undefined,
    { startMs, endMs, isCancelled }: ResponseTimes & { readonly isCancelled: boolean },
  ): void {
    if (index >= MAX_COUNTED_RESPONSES) return;
    while (this.#counts.length <= index) this.#counts.push(createCounts());
    const counts = this.#counts[index]!;
    const allMs = Math.max(0, endMs - startMs);
    if (isCancelled) return add(counts.cancel, allMs);
    const outputStartMs = Math.min(Math.max(response?.outputStartMs ?? endMs, startMs), endMs);
    const outputMs = endMs - outputStartMs;
    add(counts.computeInfer, Math.max(0, outputStartMs - startMs));
    if (response === undefined) return add(counts.emptyResponse, allMs);
    if (!("error" in response)) {
      add(counts.computeOutput, outputMs);
      return add(counts.success, allMs);
    }
    if (outputMs > 0) add(counts.computeOutput, outputMs);
    add(counts.fail, allMs);
  }

  /** Everything counted, as the statistics extension shows it. */
  toMessages(): Record<string, InferResponseStatistics> {
    return Object.fromEntries(
      this.#counts.map((counts, index) => [
        String(index),
        create(InferResponseStatisticsSchema, {
          computeInfer: durationMessage(counts.computeInfer),
          computeOutput: durationMessage(counts.computeOutput),
          success: durationMessage(counts.success),
          fail: durationMessage(counts.fail),
          emptyResponse: durationMessage(counts.emptyResponse),
          cancel: durationMessage(counts.cancel),
        }),
      ]),
    );
  }
}

function add(counted: DurationCount, durationMs: number): void {
  counted.count++;
  counted.sumMs += durationMs;
}

function createCounts(): ResponseCounts {
  const none = () => ({ count: 0, sumMs: 0 });
  return {
    computeInfer: none(),
    computeOutput: none(),
    success: none(),
    fail: none(),
    emptyResponse: none(),
    cancel: none(),
  };
}
