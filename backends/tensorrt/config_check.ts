import {
  DataType,
  type ModelConfig,
  type ModelInput,
  type ModelOutput,
} from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue } from "../../proto/model_config.ts";
import { formatShape } from "../../proto/tensor.ts";
import type { EngineSignature, EngineTensor } from "../../ffi/tensorrt/signature.ts";
import { chooseProfiles, maxRows, profileMisfit } from "./profile.ts";
import { configTypeOfTrt } from "./tensor_types.ts";

/**
 * Compares a configuration with the engine.
 * @throws ServerError INVALID_ARG with every mismatch and its place.
 */
export function checkConfig(
  config: ModelConfig,
  signature: EngineSignature,
  modelName: string,
): void {
  const profiles = config.instanceGroup.length === 0
    ? [0]
    : config.instanceGroup.flatMap((group) => chooseProfiles(group, signature, modelName));
  const issues: ConfigIssue[] = [];
  const add = (path: string, message: string) => issues.push({ path, message });
  const rows = maxRows(signature, profiles);
  if (config.maxBatchSize > rows && rows > 0) {
    add(
      "max_batch_size",
      `unexpected configuration maximum batch size ${config.maxBatchSize} for '${modelName}', ` +
        `model maximum is ${rows}`,
    );
  }
  const context = { modelName, isBatching: config.maxBatchSize > 0, signature, profiles };
  config.input.forEach((input, index) =>
    checkTensor(input, "input", context, adder("input", index))
  );
  const scattered = new Set(config.batchOutput.flatMap(({ targetName }) => targetName));
  config.output.forEach((output, index) =>
    checkTensor(output, "output", { ...context, scattered }, adder("output", index))
  );
  checkAllInputs(config, signature, add);
  if (issues.length > 0) throw configError(issues);

  function adder(list: string, index: number) {
    return (field: string, message: string) =>
      add(field === "" ? `${list}[${index}]` : `${list}[${index}].${field}`, message);
  }
}

interface CheckContext {
  readonly modelName: string;
  readonly isBatching: boolean;
  readonly signature: EngineSignature;
  readonly profiles: readonly number[];
  readonly scattered?: ReadonlySet<string>;
}

type AddIssue = (field: string, message: string) => void;

function checkTensor(
  configured: ModelInput | ModelOutput,
  kind: "input" | "output",
  context: CheckContext,
  add: AddIssue,
): void {
  const { modelName, signature } = context;
  const { name } = configured;
  const own = signature.tensors.filter(({ isInput }) => isInput === (kind === "input"));
  const tensor = own.find((each) => each.name === name);
  if (tensor === undefined) {
    const allowed = own.map((each) => each.name).join(", ");
    return add("name", `unexpected inference ${kind} '${name}', allowed ${kind}s are: ${allowed}`);
  }
  const expected = configTypeOfTrt(tensor.type);
  if (configured.dataType !== expected) {
    add(
      "data_type",
      `unexpected datatype ${DataType[configured.dataType]} for inference ${kind} '${name}', ` +
        `expecting ${DataType[expected]} for ${modelName}`,
    );
  }
  if (configured.isShapeTensor !== tensor.isShapeTensor) {
    add(
      "is_shape_tensor",
      tensor.isShapeTensor
        ? `'${name}' is a shape tensor but the model configuration does not specify it as a shape ` +
          `tensor.`
        : `'${name}' is incorrectly specified as a shape tensor.`,
    );
    return;
  }
  const isLinear = tensor.format === 0;
  if (configured.isNonLinearFormatIo === isLinear) {
    add(
      "is_non_linear_format_io",
      `'${name}' uses a ${isLinear ? "linear" : "non-linear"} IO format, but ` +
        `'is_non_linear_format_io' is incorrectly set to ${isLinear} in the model configuration.`,
    );
  }
  if (!context.scattered?.has(name)) checkDims(configured, tensor, context, add);
}

function checkDims(
  configured: ModelInput | ModelOutput,
  tensor: EngineTensor,
  context: CheckContext,
  add: AddIssue,
): void {
  const { isBatching, modelName } = context;
  const dims = (configured.reshape?.shape ?? configured.dims).map(Number);
  const expected = formatShape(tensor.dims);
  if ("allowRaggedBatch" in configured && configured.allowRaggedBatch && isBatching) return;
  if (tensor.isShapeTensor) {
    const count = (dims[0] ?? 0) + (isBatching ? 1 : 0);
    if (dims.length === 1 && count === tensor.dims[0]) return;
    return add(
      "dims",
      `model '${modelName}', shape tensor '${tensor.name}': the model has ${
        tensor.dims[0]
      } values ` +
        `but the model configuration specifies dims ${formatShape(dims)}` +
        (isBatching ? ", to which the batch size is added" : ""),
    );
  }
  if (isBatching && tensor.dims[0] !== -1) {
    return add(
      "dims",
      `model '${modelName}', tensor '${tensor.name}': for the model to support batching the shape ` +
        `should have at least 1 dimension and the first dimension must be -1; but shape expected ` +
        `by the model is ${expected}`,
    );
  }
  const complete = isBatching ? [-1, ...dims] : dims;
  const isScalar = !isBatching && tensor.dims.length === 0 && dims.every((dim) => dim === 1);
  const agrees = isScalar || tensor.dims.length === complete.length &&
      tensor.dims.every((dim, index) => dim === -1 || dim === complete[index]);
  if (!agrees) {
    const shape = isBatching
      ? `(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor ` +
        `shape, making complete shape ${formatShape(complete)})`
      : `(shape ${formatShape(complete)})`;
    return add(
      "dims",
      `model '${modelName}', tensor '${tensor.name}': the model expects ${tensor.dims.length} ` +
        `dimensions (shape ${expected}) but the model configuration specifies ` +
        `${complete.length} dimensions ${shape}`,
    );
  }
  if (tensor.isInput) checkProfiles(tensor, complete, context, add);
}

/** Fixed dims must lie within some profile. */
function checkProfiles(
  tensor: EngineTensor,
  dims: readonly number[],
  { profiles, modelName }: CheckContext,
  add: AddIssue,
): void {
  const misfits = profiles.map((profile) => {
    const shapes = tensor.profiles[profile];
    if (shapes === undefined) return undefined;
    return profileMisfit(dims.map((dim, index) => dim === -1 ? shapes.opt[index]! : dim), shapes);
  });
  const [misfit] = misfits;
  if (misfit === undefined || misfits.some((each) => each === undefined)) return;
  add(
    "dims",
    `model configuration specified invalid shape for input '${tensor.name}' for model ` +
      `${modelName}. Error details: ${misfit}`,
  );
}

function checkAllInputs(
  config: ModelConfig,
  { tensors }: EngineSignature,
  add: (path: string, message: string) => void,
): void {
  const given = new Set(config.input.map(({ name }) => name));
  for (const { targetName } of config.batchInput) for (const name of targetName) given.add(name);
  if (config.schedulingChoice.case === "sequenceBatching") {
    const { controlInput, state } = config.schedulingChoice.value;
    for (const { name } of controlInput) given.add(name);
    for (const { inputName } of state) given.add(inputName);
  }
  const inputs = tensors.filter(({ isInput }) => isInput);
  for (const name of given) {
    const isListed = config.input.some((input) => input.name === name);
    if (isListed || inputs.some((input) => input.name === name)) continue;
    add("", `the model has no input '${name}', which the configuration fills`);
  }
  const missing = inputs.filter(({ name }) => !given.has(name)).map(({ name }) => `'${name}'`);
  if (missing.length === 0) return;
  add(
    "input",
    `failed to specify the dimensions of all input tensors or values of all input shape tensors: ` +
      `the configuration has no ${missing.join(", ")}`,
  );
}
