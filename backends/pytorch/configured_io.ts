import {
  DataType,
  type ModelConfig,
  type ModelSequenceBatching_Control,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue } from "../../proto/model_config.ts";

/** A tensor that the configuration names, wherever it does. */
export interface ConfiguredTensor {
  /** Field of the configuration that has the name. */
  readonly path: string;
  readonly name: string;
  readonly source: "input" | "output" | "control" | "state" | "batch";
  readonly dataType: DataType;
  /** Without the dimension of the batch; undefined = not told. */
  readonly dims: readonly bigint[] | undefined;
  /** Requests may leave it out. */
  readonly isOptional: boolean;
}

/** What goes into the model: inputs, then what is made for it. */
export function configuredInputs(config: ModelConfig): ConfiguredTensor[] {
  const inputs = config.input.map((each, index): ConfiguredTensor => ({
    path: `input[${index}].name`,
    name: each.name,
    source: "input",
    dataType: each.dataType,
    dims: each.reshape?.shape ?? each.dims,
    isOptional: each.optional,
  }));
  const { controlInput, state } = sequenceOf(config);
  const controls = controlInput.map(({ name, control }, index): ConfiguredTensor => ({
    path: `sequence_batching.control_input[${index}].name`,
    name,
    source: "control",
    dataType: control[0] === undefined ? DataType.TYPE_INVALID : controlType(control[0]),
    dims: [1n],
    isOptional: false,
  }));
  const states = state.map(({ inputName, dataType, dims }, index): ConfiguredTensor => ({
    ...{ path: `sequence_batching.state[${index}].input_name`, name: inputName },
    ...{ source: "state", dataType, dims, isOptional: false },
  }));
  const generated = config.batchInput.flatMap(({ targetName, dataType }, index) =>
    targetName.map((name, place): ConfiguredTensor => ({
      ...{ path: `batch_input[${index}].target_name[${place}]`, name },
      ...{ source: "batch", dataType, dims: undefined, isOptional: false },
    }))
  );
  return [...inputs, ...controls, ...states, ...generated];
}

/** What comes out of the model: outputs, then states. */
export function configuredOutputs(config: ModelConfig): ConfiguredTensor[] {
  const outputs = config.output.map((each, index): ConfiguredTensor => ({
    path: `output[${index}].name`,
    name: each.name,
    source: "output",
    dataType: each.dataType,
    dims: each.reshape?.shape ?? each.dims,
    isOptional: false,
  }));
  const states = sequenceOf(config).state.map(({ outputName, dataType, dims }, index) => ({
    ...{ path: `sequence_batching.state[${index}].output_name`, name: outputName },
    ...{ source: "state" as const, dataType, dims, isOptional: false },
  }));
  const listed = new Set(outputs.map(({ name }) => name));
  return [...outputs, ...states.filter(({ name }) => !listed.has(name))];
}

function sequenceOf({ schedulingChoice }: ModelConfig) {
  return schedulingChoice.case === "sequenceBatching"
    ? schedulingChoice.value
    : { controlInput: [], state: [] };
}

function controlType(control: ModelSequenceBatching_Control): DataType {
  if (control.kind === ControlKind.CONTROL_SEQUENCE_CORRID) return control.dataType;
  if (control.int32FalseTrue.length > 0) return DataType.TYPE_INT32;
  if (control.fp32FalseTrue.length > 0) return DataType.TYPE_FP32;
  return DataType.TYPE_BOOL;
}

const NO_TENSOR_TYPE = /^TYPE_(?:UINT16|UINT32|UINT64|INVALID)$/;

/**
 * Checks what can be told before the file is read.
 * @throws ServerError when inputs or outputs are missing, or have types or dims that no model of PyTorch has.
 */
export function checkTensors(config: ModelConfig, what: "TorchScript file" | "package"): void {
  const issues: ConfigIssue[] = [];
  for (const kind of ["input", "output"] as const) {
    if (config[kind].length > 0) continue;
    issues.push({
      path: kind,
      message: `model configuration must contain at least one ${kind}, none were specified.`,
      code: "INTERNAL",
      hint:
        `model '${config.name}' must list its ${kind}s for backend 'pytorch': a ${what} tells neither their types ` +
        `nor their shapes`,
    });
  }
  for (const each of configuredInputs(config)) checkTensor(each, "input", config, issues);
  for (const each of configuredOutputs(config)) checkTensor(each, "output", config, issues);
  if (issues.length > 0) throw configError(issues);
}

function checkTensor(
  { path, name, source, dataType, dims }: ConfiguredTensor,
  kind: "input" | "output",
  config: ModelConfig,
  issues: ConfigIssue[],
): void {
  const type = DataType[dataType] ?? String(dataType);
  const isText = dataType === DataType.TYPE_STRING;
  if (NO_TENSOR_TYPE.test(type) || (isText && source === "control")) {
    const refusal = source === "control"
      ? `input '${name}' type '${type}' is not supported by PyTorch.`
      : source === "state"
      ? `unsupported datatype ${type} for ${kind === "input" ? "input " : ""}state '${name}' for ` +
        `model '${config.name}'`
      : `unsupported datatype ${type} for ${kind} '${name}' for model '${config.name}'`;
    issues.push({ path, message: refusal, code: "INTERNAL" });
  }
  if (!isText) return;
  const isOne = dims?.length === 1 && (config.maxBatchSize === 0 || dims[0] === 1n);
  if (isOne) return;
  issues.push({
    path,
    message: `Triton only supports 1 dimensional List of String as ${kind} for '${name}' for ` +
      `model '${config.name}'`,
    code: "INTERNAL",
    hint: "expected one dimension, and with max_batch_size dims: [ 1 ]",
  });
}
