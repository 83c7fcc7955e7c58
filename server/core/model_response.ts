import type { ExecuteResponse } from "../../backends/backend.ts";
import type { InferRequest, InferResponse, ParameterValue } from "../../proto/infer.ts";
import { type Tensor, withShape } from "../../proto/tensor.ts";
import { classify } from "./classification.ts";
import type { OutputLabels } from "./config_labels.ts";
import { type OutputRule, reshapeTo, type TensorRules } from "./tensor_rules.ts";

/** What a response is made from, beside the outputs. */
export interface ResponseContext {
  readonly request: InferRequest;
  readonly version: string;
  readonly rules: TensorRules;
  readonly labels: OutputLabels;
}

type Success = Exclude<ExecuteResponse, { readonly error: unknown }>;

const NO_PARAMETERS: Readonly<Record<string, ParameterValue>> = {};

/** Turns the outputs of an instance into a response: shapes as configured, classification where it was asked for. */
export function createResponse(outcome: Success, context: ResponseContext): InferResponse {
  const { request, rules } = context;
  let outputs = outcome.outputs;
  if (rules.reshapesOutputs) {
    outputs = outputs.map((output) => restoreShape(output, rules));
  }
  if (request.outputs.some(({ classificationCount }) => classificationCount > 0)) {
    outputs = outputs.map((output) => classifyOutput(output, context));
  }
  return {
    modelName: request.modelName,
    modelVersion: context.version,
    id: request.id,
    parameters: outcome.parameters ?? NO_PARAMETERS,
    outputs,
  };
}

/** The shape of the configuration's `dims` for an output that the model gives in its `reshape` (D2). */
function restoreShape(output: Tensor, rules: TensorRules): Tensor {
  const rule: OutputRule | undefined = rules.outputByName.get(output.name);
  if (rule?.reshape === undefined) return output;
  const leading = rules.maxBatchSize > 0 ? 1 : 0;
  if (output.shape.length !== leading + rule.reshape.length) return output;
  const shape = reshapeTo(output.shape, leading, { from: rule.reshape, to: rule.dims });
  return withShape(output, shape);
}

function classifyOutput(output: Tensor, { request, rules, labels }: ResponseContext): Tensor {
  const asked = request.outputs.find(({ name }) => name === output.name);
  if (asked === undefined || asked.classificationCount === 0) return output;
  return classify(output, {
    count: asked.classificationCount,
    isBatched: rules.maxBatchSize > 0,
    labels: labels.get(output.name),
  });
}

/** Frees the buffers behind a response, once. */
export function releaseResponse(
  releases: WeakMap<InferResponse, () => void>,
  response: InferResponse,
): void {
  const release = releases.get(response);
  if (release === undefined) return;
  releases.delete(response);
  release();
}
