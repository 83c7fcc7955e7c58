import {
  DataType,
  type ModelConfig,
  type ModelSequenceBatching_Control,
  ModelSequenceBatching_Control_Kind,
  type ModelSequenceBatching_State,
} from "../proto/gen/model_config_pb.ts";
import { ServerError } from "../proto/status.ts";
import { formatShape } from "../proto/tensor.ts";
import { elementTypeName } from "../ffi/onnxruntime/element_type.ts";
import type { TensorSignature } from "../ffi/onnxruntime/signature.ts";
import { checkDims, type ModelTensors } from "./onnx_dims_check.ts";
import { configTypeName } from "./onnx_tensor_types.ts";

/** A tensor that the sequence batcher exchanges with the model. */
export interface SequenceTensorCheck {
  /** Field of the configuration. */
  readonly path: string;
  /** @throws ServerError when the model has no such tensor. */
  readonly check: () => void;
}

/** The checks of all controls and states; each is made by itself, so that all faults are found at once. */
export function sequenceTensorChecks(
  config: ModelConfig,
  tensors: ModelTensors,
): readonly SequenceTensorCheck[] {
  if (config.schedulingChoice.case !== "sequenceBatching") return [];
  const { controlInput, state } = config.schedulingChoice.value;
  const controls = controlInput.flatMap(({ name, control }, index) =>
    control.map((each, place) => ({
      path: `sequence_batching.control_input[${index}].control[${place}]`,
      check: () => checkControl(name, each, tensors),
    }))
  );
  const states = state.map((each, index) => ({
    path: `sequence_batching.state[${index}]`,
    check: () => checkState(each, tensors),
  }));
  return [...controls, ...states];
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
