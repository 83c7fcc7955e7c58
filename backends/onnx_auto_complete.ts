import { create } from "@bufbuild/protobuf";
import {
  type ModelConfig,
  ModelDynamicBatchingSchema,
  ModelInputSchema,
  ModelOutputSchema,
  ModelTensorReshapeSchema,
} from "../proto/gen/model_config_pb.ts";
import { datatypeOfConfig } from "../proto/datatype.ts";
import { configError } from "../proto/model_config.ts";
import { ServerError } from "../proto/status.ts";
import { elementTypeName, ONNX_TYPE, onnxTypeName } from "../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../ffi/onnxruntime/signature.ts";
import { configType } from "./onnx_tensor_types.ts";

const DEFAULT_MAX_BATCH_SIZE = 4;

/** True when the configuration lists inputs and outputs: then nothing is completed, not even the batch size. */
export function isComplete(config: ModelConfig): boolean {
  return config.input.length + config.batchInput.length > 0 && config.output.length > 0;
}

/**
 * Completes batch size, scheduler, inputs and outputs from the model (config.md §8.2), in the model's order.
 * @throws ServerError when the model has tensors that cannot be served, or cannot batch as the configuration wants.
 */
export function completeConfig(
  config: ModelConfig,
  signature: SessionSignature,
  options: { readonly modelName: string; readonly defaultMaxBatchSize: number | undefined },
): void {
  if (isComplete(config)) return;
  const { modelName } = options;
  const fed = new Set(fedTensorNames(config));
  const made = new Set(stateOutputNames(config));
  const tensors = [...signature.inputs, ...signature.outputs];
  for (const tensor of tensors) checkIsTensor(tensor);
  if (tensors.every(hasFreeFirstDimension)) {
    if (config.maxBatchSize === 0) {
      const size = options.defaultMaxBatchSize ?? DEFAULT_MAX_BATCH_SIZE;
      config.maxBatchSize = Math.max(size, 0);
    }
    addDynamicBatching(config);
  } else if (config.maxBatchSize !== 0) {
    const message = `autofill failed for model '${modelName}': model does not support batching ` +
      `while non-zero max_batch_size is specified`;
    throw configError([{ path: "max_batch_size", message }]);
  }
  const isBatching = config.maxBatchSize > 0;
  if (config.input.length === 0) {
    config.input = signature.inputs.filter(({ name }) => !fed.has(name)).map((tensor) =>
      create(ModelInputSchema, describe(tensor, { kind: "input", isBatching, modelName }))
    );
  }
  if (config.output.length === 0) {
    config.output = signature.outputs.filter(({ name }) => !made.has(name)).map((tensor) =>
      create(ModelOutputSchema, describe(tensor, { kind: "output", isBatching, modelName }))
    );
  }
}

/** @throws ServerError UNSUPPORTED for sequences, maps and optional types. */
export function checkIsTensor(tensor: TensorSignature): void {
  if (tensor.onnxType === ONNX_TYPE.TENSOR) return;
  throw new ServerError(
    "UNSUPPORTED",
    `Unsupported ONNX Type '${onnxTypeName(tensor.onnxType)}' for I/O '${tensor.name}', expected ` +
      `'ONNX_TYPE_TENSOR'.`,
  );
}

function hasFreeFirstDimension({ dims }: TensorSignature): boolean {
  return dims !== undefined && dims.length > 0 && dims[0] === -1;
}

function addDynamicBatching(config: ModelConfig): void {
  const choice = config.schedulingChoice.case;
  if (config.maxBatchSize <= 1 || choice === "sequenceBatching" || choice === "dynamicBatching") {
    return;
  }
  config.schedulingChoice = { case: "dynamicBatching", value: create(ModelDynamicBatchingSchema) };
}

/** Names of model inputs that the server fills: sequence controls, states, batch inputs. */
function fedTensorNames(config: ModelConfig): string[] {
  const names = config.batchInput.flatMap(({ targetName }) => targetName);
  if (config.schedulingChoice.case === "sequenceBatching") {
    const { controlInput, state } = config.schedulingChoice.value;
    names.push(...controlInput.map(({ name }) => name), ...state.map((each) => each.inputName));
  }
  return names;
}

function stateOutputNames(config: ModelConfig): string[] {
  if (config.schedulingChoice.case !== "sequenceBatching") return [];
  return config.schedulingChoice.value.state.map(({ outputName }) => outputName);
}

function describe(
  tensor: TensorSignature,
  { kind, isBatching, modelName }: {
    readonly kind: "input" | "output";
    readonly isBatching: boolean;
    readonly modelName: string;
  },
) {
  const dataType = configType(tensor.elementType);
  if (datatypeOfConfig(dataType) === undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `model ${kind} '${tensor.name}' must specify 'data_type' for ${modelName}: the element type ` +
        `${elementTypeName(tensor.elementType)} of the ONNX model has no counterpart`,
    );
  }
  // A tensor of unknown rank cannot be described; one free dimension says least.
  const modelDims = tensor.dims ?? [-1];
  const dims = isBatching ? modelDims.slice(1) : modelDims;
  if (dims.length > 0) return { name: tensor.name, dataType, dims: dims.map(BigInt) };
  const scalar = { name: tensor.name, dataType, dims: [1n] };
  // Without batching an empty reshape is not allowed, and a scalar is known by its rank.
  return isBatching ? { ...scalar, reshape: create(ModelTensorReshapeSchema) } : scalar;
}
