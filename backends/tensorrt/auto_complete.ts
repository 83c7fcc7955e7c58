import { create } from "@bufbuild/protobuf";
import {
  DataType,
  type ModelConfig,
  ModelDynamicBatchingSchema,
  ModelInputSchema,
  ModelOutputSchema,
  ModelTensorReshapeSchema,
} from "../../proto/gen/model_config_pb.ts";
import { configError } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import {
  type EngineSignature,
  type EngineTensor,
  trtTypeName,
} from "../../ffi/tensorrt/signature.ts";
import { chooseProfiles, maxRows } from "./profile.ts";
import { configTypeOfTrt } from "./tensor_types.ts";

/** What a configuration says of a tensor, complete or not. */
interface ConfiguredTensor {
  name: string;
  dataType: DataType;
  dims: bigint[];
  isShapeTensor: boolean;
}

/** True when nothing is left to complete. */
export function isComplete(config: ModelConfig): boolean {
  const isWhole = ({ dataType, dims }: ConfiguredTensor) =>
    dataType !== DataType.TYPE_INVALID && dims.length > 0;
  return config.maxBatchSize > 0 && config.input.length > 0 && config.output.length > 0 &&
    config.input.every(isWhole) && config.output.every(isWhole);
}

/**
 * Completes batch size, scheduler, inputs and outputs from the engine (config.md §8.4), in its order. The batch size is
 * the most rows that the profiles of the instance groups take.
 * @throws ServerError when configuration and engine contradict each other about batching.
 */
export function completeConfig(
  config: ModelConfig,
  signature: EngineSignature,
  modelName: string,
): void {
  const groups = config.instanceGroup.length === 0 ? [undefined] : config.instanceGroup;
  const profiles = groups.flatMap((group) => chooseProfiles(group, signature, modelName));
  const rows = maxRows(signature, profiles);
  const hint = batchHint(config, signature, modelName);
  if (config.maxBatchSize > rows) {
    const message = rows === 0
      ? `autofill failed for model '${modelName}': model does not support batching while ` +
        `non-zero max_batch_size is specified`
      : `unable to autofill for '${modelName}', configuration specified max-batch ` +
        `${config.maxBatchSize} but TensorRT engine only supports max-batch ${rows}`;
    throw configError([{ path: "max_batch_size", message }]);
  }
  if (config.maxBatchSize === 0 && hint !== false) config.maxBatchSize = rows;
  if (config.maxBatchSize > 1 && config.schedulingChoice.case === undefined) {
    const value = create(ModelDynamicBatchingSchema);
    config.schedulingChoice = { case: "dynamicBatching", value };
  }
  completeTensors(config, signature, modelName);
}

/** Whether the configured dims leave out a batch dimension; undefined when they do not tell. */
function batchHint(
  config: ModelConfig,
  { tensors }: EngineSignature,
  modelName: string,
): boolean | undefined {
  const hints = new Set<boolean>();
  for (const tensor of [...config.input, ...config.output]) {
    const own = tensors.find(({ name }) => name === tensor.name);
    const shape = tensor.reshape?.shape ?? tensor.dims;
    if (own === undefined || tensor.dims.length === 0) continue;
    if (own.isShapeTensor) {
      if (Number(shape[0]) === own.dims[0]) hints.add(false);
      else if (Number(shape[0]) + 1 === own.dims[0]) hints.add(true);
    } else if (shape.length === own.dims.length) hints.add(false);
    else if (shape.length + 1 === own.dims.length) hints.add(true);
  }
  if (hints.size < 2) return [...hints][0];
  throw new ServerError(
    "INVALID_ARG",
    `unable to autofill for '${modelName}', model tensor configurations are contradicting each ` +
      `other in terms of whether batching is supported`,
  );
}

function completeTensors(
  config: ModelConfig,
  { tensors }: EngineSignature,
  modelName: string,
): void {
  const isBatching = config.maxBatchSize > 0;
  const fed = new Set(fedNames(config));
  const own = tensors.filter(({ name }) => !fed.has(name));
  if (config.input.length === 0) {
    config.input = own.filter(({ isInput }) => isInput)
      .map((tensor) => create(ModelInputSchema, describe(tensor, isBatching, modelName)));
  }
  if (config.output.length === 0) {
    config.output = own.filter(({ isInput }) => !isInput)
      .map((tensor) => create(ModelOutputSchema, describe(tensor, isBatching, modelName)));
  }
  for (const tensor of [...config.input, ...config.output]) {
    const known = tensors.find(({ name }) => name === tensor.name);
    if (known === undefined) continue;
    const { dataType, dims } = describe(known, isBatching, modelName);
    if (tensor.dataType === DataType.TYPE_INVALID) tensor.dataType = dataType;
    if (tensor.dims.length > 0) continue;
    tensor.dims = dims;
    tensor.isShapeTensor = known.isShapeTensor;
    tensor.isNonLinearFormatIo = known.format !== 0;
  }
}

/** Tensors that the server fills or keeps: sequence controls, states, batch inputs. */
function fedNames(config: ModelConfig): string[] {
  const names = config.batchInput.flatMap(({ targetName }) => targetName);
  if (config.schedulingChoice.case !== "sequenceBatching") return names;
  const { controlInput, state } = config.schedulingChoice.value;
  return names.concat(
    controlInput.map(({ name }) => name),
    state.flatMap(({ inputName, outputName }) => [inputName, outputName]),
  );
}

function describe(tensor: EngineTensor, isBatching: boolean, modelName: string) {
  const { name, type, isShapeTensor } = tensor;
  const dataType = configTypeOfTrt(type);
  if (dataType === DataType.TYPE_INVALID) {
    throw new ServerError(
      "UNSUPPORTED",
      `tensor '${name}' of model '${modelName}' cannot be served: its type ${trtTypeName(type)} ` +
        `has no counterpart`,
    );
  }
  const isNonLinearFormatIo = tensor.format !== 0;
  const facts = { name, dataType, isShapeTensor, isNonLinearFormatIo };
  if (isShapeTensor) {
    // With batching the first value is the batch size, which the configuration leaves out.
    const count = (tensor.dims[0] ?? 1) - (isBatching ? 1 : 0);
    return { ...facts, dims: [BigInt(Math.max(count, 1))] };
  }
  const dims = (isBatching ? tensor.dims.slice(1) : tensor.dims).map(BigInt);
  if (dims.length > 0) return { ...facts, dims };
  const scalar = { ...facts, dims: [1n] };
  return isBatching ? { ...scalar, reshape: create(ModelTensorReshapeSchema) } : scalar;
}
