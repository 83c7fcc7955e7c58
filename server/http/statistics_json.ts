import type {
  InferBatchStatistics,
  InferResponseStatistics,
  InferStatistics,
  ModelStatistics,
  StatisticDuration,
} from "../../proto/gen/grpc_service_pb.ts";
import type { JsonOutput } from "./json_response.ts";

/** The body of the statistics endpoints (observability.md §3.1). */
export function statisticsJson(models: readonly ModelStatistics[]): JsonOutput {
  return { model_stats: models.map(modelJson) };
}

function modelJson(model: ModelStatistics): JsonOutput {
  return {
    name: model.name,
    version: model.version,
    last_inference: model.lastInference,
    inference_count: model.inferenceCount,
    execution_count: model.executionCount,
    inference_stats: inferJson(model.inferenceStats),
    response_stats: Object.fromEntries(
      Object.entries(model.responseStats).map(([index, stats]) => [index, responseJson(stats)]),
    ),
    batch_stats: model.batchStats.map(batchJson),
    memory_usage: model.memoryUsage.map(({ type, id, byteSize }) => ({
      type,
      id,
      byte_size: byteSize,
    })),
  };
}

function inferJson(stats: InferStatistics | undefined): JsonOutput {
  return {
    success: durationJson(stats?.success),
    fail: durationJson(stats?.fail),
    queue: durationJson(stats?.queue),
    compute_input: durationJson(stats?.computeInput),
    compute_infer: durationJson(stats?.computeInfer),
    compute_output: durationJson(stats?.computeOutput),
    cache_hit: durationJson(stats?.cacheHit),
    cache_miss: durationJson(stats?.cacheMiss),
  };
}

function responseJson(stats: InferResponseStatistics): JsonOutput {
  return {
    compute_infer: durationJson(stats.computeInfer),
    compute_output: durationJson(stats.computeOutput),
    success: durationJson(stats.success),
    fail: durationJson(stats.fail),
    empty_response: durationJson(stats.emptyResponse),
    cancel: durationJson(stats.cancel),
  };
}

function batchJson(stats: InferBatchStatistics): JsonOutput {
  return {
    batch_size: stats.batchSize,
    compute_input: durationJson(stats.computeInput),
    compute_infer: durationJson(stats.computeInfer),
    compute_output: durationJson(stats.computeOutput),
  };
}

function durationJson(duration: StatisticDuration | undefined): JsonOutput {
  return { count: duration?.count ?? 0n, ns: duration?.ns ?? 0n };
}
