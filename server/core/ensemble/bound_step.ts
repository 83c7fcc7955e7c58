import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import type { CancelSignal, InferRequest, InferResponse } from "../../../proto/infer.ts";
import type { ResponseReceiver } from "../inference_api.ts";
import type { ComputeSums } from "../scheduler/job.ts";
import type { Trace } from "../trace.ts";
import type { EnsembleStep } from "./ensemble_graph.ts";
import type { TensorReader } from "./ensemble_shape.ts";
import type { StepGate } from "./step_gate.ts";

/** What goes along with a request of a step. */
export interface StepCallOptions {
  readonly signal: CancelSignal;
  /** Where the durations of the request are added up. */
  readonly compute: ComputeSums;
  /** Of the request of the step, if that of the ensemble is traced. */
  readonly trace: Trace | undefined;
}

/** A loaded model version as an ensemble uses it. */
export interface StepModel {
  readonly config: ModelConfig;
  readonly versionText: string;
  /** Like `InferenceApi.inferStream`, on exactly this version. */
  inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    options: StepCallOptions,
  ): Promise<void>;
  /** See `InferenceApi.releaseResponse`. */
  releaseResponse(response: InferResponse): void;
}

/** A step with the model version that runs it. */
export interface BoundStep {
  readonly step: EnsembleStep;
  readonly model: StepModel;
  readonly isBatched: boolean;
  readonly isDecoupled: boolean;
  /** What the model expects of each input that is mapped, in the order of `step.inputs`. */
  readonly inputs: readonly TensorReader[];
  /** The limit of `max_inflight_requests`, if there is one. */
  readonly gate: StepGate | undefined;
}

/** Prepares a step to run on a model. */
export function bindStep(
  step: EnsembleStep,
  model: StepModel,
  gate: StepGate | undefined,
): BoundStep {
  const { config } = model;
  const isBatched = config.maxBatchSize > 0;
  return {
    step,
    model,
    isBatched,
    isDecoupled: config.modelTransactionPolicy?.decoupled === true,
    inputs: step.inputs.map(({ inner }) => {
      const input = config.input.find(({ name }) => name === inner);
      return { name: inner, dims: input?.dims.map(Number) ?? [], isBatched };
    }),
    gate,
  };
}
