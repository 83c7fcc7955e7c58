import {
  DataType,
  type ModelConfig,
  type ModelSequenceBatching_Control,
  ModelSequenceBatching_Control_Kind,
  type ModelSequenceBatching_State,
} from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { formatShape } from "../../proto/tensor.ts";
import { elementTypeName, type TensorSignature } from "../../ffi/onnxruntime/mod.ts";
import { checkDims, type ModelTensors } from "./dims_check.ts";
import { configTypeName } from "./tensor_types.ts";

/**
 * Checks the tensors through which the sequence batcher talks to the model.
 * @returns the number of controls.
 */
export function checkControls(config: ModelConfig, tensors: ModelTensors): number {
  if (config.schedulingChoice.case !== "sequenceBatching") return 0;
  let count = 0;
  for (const { name, control } of config.schedulingChoice.value.controlInput) {
    for (const each of control) {
      checkControl(name, each, tensors);
      count++;
    }
  }
  return count;
}

function checkControl(
  name: string,
  control: ModelSequenceBatching_Control,
  { inputs, isBatching, modelName }: ModelTensors,
): void {
  const tensor = inputs.get(name);
  if (tensor === undefined) {
    throw new ServerError(
      "INTERNAL",
      `configuration specified sequence control '${name}', but model does not provide that input`,
    );
  }
  const dims = isBatching ? tensor.dims?.slice(1) : tensor.dims;
  if (dims !== undefined && (dims.length !== 1 || dims[0] !== 1)) {
    refuse(
      `unable to load model '${modelName}', sequence control '${name}' in model has dims ` +
        `${formatShape(dims)} but dims [1] is expected`,
    );
  }
  const expected = DataType[controlType(control)] ?? "TYPE_INVALID";
  if (configTypeName(tensor.elementType) === expected) return;
  refuse(
    `unable to load model '${modelName}', sequence control '${name}', the model expects data-type ` +
      `${elementTypeName(tensor.elementType)} but the model configuration specifies data-type ` +
      expected,
  );
}

function controlType(control: ModelSequenceBatching_Control): DataType {
  if (control.kind === ModelSequenceBatching_Control_Kind.CONTROL_SEQUENCE_CORRID) {
    return control.dataType;
  }
  if (control.int32FalseTrue.length > 0) return DataType.TYPE_INT32;
  if (control.fp32FalseTrue.length > 0) return DataType.TYPE_FP32;
  return DataType.TYPE_BOOL;
}

/**
 * Checks the tensors that carry the state of a sequence from one run to the next.
 * @returns the number of states.
 */
export function checkStates(config: ModelConfig, tensors: ModelTensors): number {
  if (config.schedulingChoice.case !== "sequenceBatching") return 0;
  const states = config.schedulingChoice.value.state;
  for (const state of states) checkState(state, tensors);
  return states.length;
}

function checkState(state: ModelSequenceBatching_State, tensors: ModelTensors): void {
  const { modelName } = tensors;
  const { inputName, outputName } = state;
  if (inputName === "") refuse(`sequence state must specify 'input_name' for ${modelName}`);
  if (outputName === "") {
    refuse(`sequence state '${inputName}' must specify 'output_name' for ${modelName}`);
  }
  if (state.dataType === DataType.TYPE_INVALID) {
    refuse(`sequence state '${inputName}' must specify 'data_type' for ${modelName}`);
  }
  if (state.useGrowableMemory) {
    refuse(
      `sequence state '${inputName}' of model '${modelName}' cannot have 'use_growable_memory': it ` +
        `needs an instance on a GPU, and 'use_same_buffer_for_input_output'`,
    );
  }
  const sides = [
    { kind: "input", name: inputName, tensor: tensors.inputs.get(inputName) },
    { kind: "output", name: outputName, tensor: tensors.outputs.get(outputName) },
  ] as const;
  for (const { kind, name, tensor } of sides) {
    const provided = kind === "input" ? tensors.inputs : tensors.outputs;
    if (tensor === undefined) {
      refuse(
        `configuration specified sequence state ${kind} '${name}', but model '${modelName}' ` +
          `provides only ${[...provided.keys()].join(", ")}`,
      );
    }
    checkStateTensor(state, tensor, tensors);
  }
}

function checkStateTensor(
  state: ModelSequenceBatching_State,
  tensor: TensorSignature,
  tensors: ModelTensors,
): void {
  const expected = DataType[state.dataType] ?? "TYPE_INVALID";
  const provided = configTypeName(tensor.elementType);
  if (expected !== provided) {
    refuse(
      `unable to load model '${tensors.modelName}', configuration expects datatype ${expected} for ` +
        `state '${tensor.name}', model provides ${provided}`,
    );
  }
  checkDims(tensor, state.dims, { tensors, isExact: false });
}

function refuse(message: string): never {
  throw new ServerError("INVALID_ARG", message);
}
