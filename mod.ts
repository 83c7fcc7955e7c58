/**
 * An inference server that speaks the protocols of Triton Inference Server.
 *
 * Run it (`deno run -A mod.ts --model-repository=DIR`), or use {@linkcode createServer} to have it inside a program.
 *
 * @module
 */
export {
  createServer,
  type CreateServerOptions,
  type ListenOptions,
  type Server,
  type ServerStart,
  type StartedModel,
} from "./server/cli/embedded_server.ts";
export type { EmbeddedInput, EmbeddedRequest } from "./server/cli/embedded_request.ts";
export type {
  InferOptions,
  ModelIndexEntry,
  ModelMetadata,
  ModelState,
  RequestTrace,
} from "./server/core/inference_api.ts";
export type {
  CancelSignal,
  InferOutput,
  InferResponse,
  ParameterValue,
  RequestedOutput,
  SharedMemoryReference,
  TensorDescription,
} from "./proto/infer.ts";
export type {
  BatchInput,
  BatchRequest,
  BatchStrategy,
  BatchStrategyContext,
  BatchStrategyLog,
} from "./server/core/batch_strategy_api.ts";
export type { Datatype } from "./proto/datatype.ts";
export type { DevicePlace, Tensor } from "./proto/tensor.ts";
export { decodeBytesTensor } from "./proto/bytes_tensor.ts";
export type {
  BytesElements,
  CallResult,
  ConfigTensor,
  InferRequest as ModelInferRequest,
  InferResponse as ModelInferResponse,
  Model,
  ModelAnswers,
  ModelCall,
  ModelClass,
  ModelConfigBuilder,
  ModelConfigObject,
  ModelContext,
  ModelError,
  ModelLog,
  ModelMetric,
  ModelMetricFamily,
  ModelMetrics,
  ModelTensor,
  NewConfigTensor,
  OutputArray,
  OutputTensor,
  RequestTrace as ModelRequestTrace,
  TensorArrays,
  TensorOf,
} from "./backends/typescript/model_api.ts";
export { ServerError, type StatusCode } from "./proto/status.ts";

if (import.meta.main) {
  const { main } = await import("./server/cli/main.ts");
  Deno.exit(await main(Deno.args));
}
