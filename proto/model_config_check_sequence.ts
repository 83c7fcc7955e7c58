import {
  DataType,
  type ModelConfig,
  ModelInstanceGroup_Kind,
  type ModelSequenceBatching,
  type ModelSequenceBatching_Control,
  ModelSequenceBatching_Control_Kind,
  type ModelSequenceBatching_ControlInput,
  type ModelSequenceBatching_State,
} from "./gen/model_config_pb.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import { isPathInside } from "./model_config_path.ts";

const CORRELATION_TYPES: readonly DataType[] = [
  DataType.TYPE_UINT64,
  DataType.TYPE_INT64,
  DataType.TYPE_UINT32,
  DataType.TYPE_INT32,
  DataType.TYPE_STRING,
];

const PAIR_FIELDS = "'int32_false_true', 'fp32_false_true' and 'bool_false_true'";

type AddIssue = (path: string, message: string) => void;

/** The checks of config.md §6.1 on sequence batching. */
export function checkSequenceBatching(
  config: ModelConfig,
  batching: ModelSequenceBatching,
): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const add: AddIssue = (path, message) =>
    void issues.push({ path: `sequence_batching.${path}`, message });
  checkControls(config.name, batching, add);
  checkStrategy(config, batching, add);
  return issues;
}

/** The checks of config.md §6.5 on implicit state, and those that the reference forgets. */
export function checkSequenceStates(
  config: ModelConfig,
  batching: ModelSequenceBatching,
): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const seen = new Set<string>();
  for (const [index, state] of batching.state.entries()) {
    const path = `sequence_batching.state[${index}]`;
    const add: AddIssue = (field, message) =>
      void issues.push({ path: field === "" ? path : `${path}.${field}`, message });
    if (state.inputName === "") {
      add("input_name", `state must specify 'input_name' for ${config.name}`);
    } else if (seen.has(state.inputName)) {
      add("input_name", `State input name '${state.inputName}' specified more than once.`);
    }
    seen.add(state.inputName);
    if (state.dataType === DataType.TYPE_INVALID) {
      add("data_type", `state '${state.inputName}' must specify 'data_type' for ${config.name}`);
    }
    checkInitialState(state, add);
    for (const [dimIndex, dim] of state.dims.entries()) {
      if (dim >= -1n) continue;
      add(
        `dims[${dimIndex}]`,
        `state '${state.inputName}' must have dimensions of -1 or from 0 on for ${config.name}, got ` +
          `${dim}`,
      );
    }
    if (!state.useGrowableMemory) continue;
    const isOnGpu = config.instanceGroup.some(({ kind }) => kind === ModelInstanceGroup_Kind.GPU);
    add(
      "use_growable_memory",
      `'use_growable_memory' of state '${state.inputName}' ` +
        (state.useSameBufferForInputOutput && isOnGpu
          ? `is not supported for ${config.name}: states are kept in the memory of the processor`
          : `needs 'use_same_buffer_for_input_output' and an instance group of KIND_GPU for ` +
            config.name),
    );
  }
  issues.push(...checkControlTensors(config, batching), ...checkStateNames(config, batching));
  return issues;
}

/** A tensor can be one thing only, and a value can go into one state only. */
function checkStateNames(config: ModelConfig, batching: ModelSequenceBatching): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const outputs = new Set<string>();
  for (const [index, { inputName, outputName }] of batching.state.entries()) {
    const path = `sequence_batching.state[${index}]`;
    const others = [
      config.input.some(({ name }) => name === inputName) ? "'input'" : "",
      batching.controlInput.some(({ name }) => name === inputName) ? "'control_input'" : "",
    ].filter((word) => word !== "");
    if (inputName !== "" && others.length > 0) {
      issues.push({
        path: `${path}.input_name`,
        message:
          `state input '${inputName}' must not be listed in ${others.join(" and ")} too for ` +
          `${config.name}: the server feeds it`,
      });
    }
    if (outputName === "") {
      issues.push({
        path: `${path}.output_name`,
        message: `sequence state '${inputName}' must specify 'output_name' for ${config.name}`,
      });
    } else if (outputs.has(outputName)) {
      issues.push({
        path: `${path}.output_name`,
        message: `State output name '${outputName}' specified more than once.`,
      });
    }
    outputs.add(outputName);
  }
  return issues;
}

function checkControls(name: string, batching: ModelSequenceBatching, add: AddIssue): void {
  const kinds = new Set<ModelSequenceBatching_Control_Kind>();
  const tensors = new Set<string>();
  for (const [inputIndex, input] of batching.controlInput.entries()) {
    const path = `control_input[${inputIndex}]`;
    if (input.name === "") {
      add(path, `sequence batching control tensor must have a name for ${name}`);
    } else if (tensors.has(input.name)) {
      add(
        `${path}.name`,
        `sequence batching control tensor '${input.name}' is specified for multiple control kinds ` +
          `for ${name}`,
      );
    }
    tensors.add(input.name);
    for (const [index, control] of input.control.entries()) {
      const kind = ModelSequenceBatching_Control_Kind[control.kind];
      const controlPath = `${path}.control[${index}]`;
      if (kinds.has(control.kind)) {
        add(controlPath, `sequence batching specifies multiple ${kind} tensors for ${name}`);
      }
      kinds.add(control.kind);
      const isId = control.kind === ModelSequenceBatching_Control_Kind.CONTROL_SEQUENCE_CORRID;
      const message = isId ? correlationProblem(control) : pairProblem(control, kind);
      if (message !== undefined) add(controlPath, message.replaceAll("<model>", name));
    }
  }
}

/** Controls that the reference lets pass although they cannot work. */
function checkControlTensors(
  { name, input: inputs }: ModelConfig,
  { controlInput }: ModelSequenceBatching,
): ConfigIssue[] {
  const listed = new Set(inputs.map((each) => each.name));
  return controlInput.flatMap((control, index) => {
    const problem = controlProblem(control, listed);
    if (problem === undefined) return [];
    return [{
      path: `sequence_batching.control_input[${index}]`,
      message: `sequence batching control tensor '${control.name}' ${problem} for ${name}`,
    }];
  });
}

function controlProblem(
  { name, control }: ModelSequenceBatching_ControlInput,
  listed: ReadonlySet<string>,
): string | undefined {
  if (name === "") return undefined;
  if (control.length === 0) return "must specify a 'control'";
  const kinds = new Set(control.map(({ kind }) => kind));
  if (kinds.size > 1) return "is specified for multiple control kinds";
  if (!listed.has(name)) return undefined;
  return "is fed by the server and must not be listed in 'input' too";
}

function pairsOf(control: ModelSequenceBatching_Control): [string, readonly unknown[]][] {
  const pairs: [string, readonly unknown[]][] = [
    ["int32_false_true", control.int32FalseTrue],
    ["fp32_false_true", control.fp32FalseTrue],
    ["bool_false_true", control.boolFalseTrue],
  ];
  return pairs.filter(([, values]) => values.length > 0);
}

function pairProblem(control: ModelSequenceBatching_Control, kind: string): string | undefined {
  const pairs = pairsOf(control);
  const [first] = pairs;
  if (first === undefined) {
    return `sequence batching must specify either 'int32_false_true', 'fp32_false_true' or ` +
      `'bool_false_true' for ${kind} for <model>`;
  }
  if (pairs.length > 1) {
    return `sequence batching specifies more than one from ${PAIR_FIELDS} for ${kind} for <model>`;
  }
  if (first[1].length === 2) return undefined;
  return `sequence batching control '${
    first[0]
  }' must have exactly 2 entries for ${kind} for <model>`;
}

function correlationProblem(control: ModelSequenceBatching_Control): string | undefined {
  if (pairsOf(control).length > 0) {
    return `sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or ` +
      `'bool_false_true' for CONTROL_SEQUENCE_CORRID for <model>`;
  }
  if (CORRELATION_TYPES.includes(control.dataType)) return undefined;
  return `unexpected data type for control CONTROL_SEQUENCE_CORRID for <model>. Allowed data types ` +
    `are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING`;
}

function checkStrategy(config: ModelConfig, batching: ModelSequenceBatching, add: AddIssue): void {
  const { name, maxBatchSize } = config;
  const strategy = batching.strategyChoice;
  if (strategy.case === "direct") {
    const utilization = strategy.value.minimumSlotUtilization;
    if (utilization >= 0 && utilization <= 1) return;
    add(
      "direct.minimum_slot_utilization",
      `sequence batching minimum slot utilization must be in range (0.0, 1.0] for ${name}`,
    );
  }
  if (strategy.case !== "oldest") return;
  for (const [index, size] of strategy.value.preferredBatchSize.entries()) {
    const path = `oldest.preferred_batch_size[${index}]`;
    if (size <= 0) {
      add(path, `sequence batching preferred batch size must be positive for ${name}`);
    } else if (size > maxBatchSize) {
      add(path, `sequence batching preferred batch size must be <= max batch size for ${name}`);
    }
  }
}

function checkInitialState(state: ModelSequenceBatching_State, add: AddIssue): void {
  const { inputName, initialState } = state;
  if (initialState.length > 1) {
    add(
      "initial_state",
      `initial_state field for state input '${inputName}' must contain exactly one or zero element. ` +
        `Found '${initialState.length}' elements.`,
    );
  }
  const [initial] = initialState;
  if (initial === undefined) return;
  const path = "initial_state[0]";
  if (initial.dataType !== state.dataType) {
    add(
      `${path}.data_type`,
      `The data type used for 'initial_state' field of state '${inputName}' does not match the state ` +
        `data type.`,
    );
  }
  if (initial.name === "") {
    add(
      path,
      `Field 'name' must be set when using initial_state for state input '${inputName}'.`,
    );
  }
  if (initial.dims.length !== state.dims.length) {
    add(
      `${path}.dims`,
      `Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for ` +
        `state input '${inputName}'. ${initial.dims.length} != ${state.dims.length}`,
    );
  }
  for (const [index, dim] of initial.dims.entries()) {
    const wanted = state.dims[index];
    if (dim < 0n) {
      add(
        `${path}.dims[${index}]`,
        `'initial_state' field for state input name '${inputName}' contains variable dimensions.`,
      );
    } else if (wanted !== undefined && wanted !== -1n && wanted !== dim) {
      add(
        `${path}.dims[${index}]`,
        `'initial_state' dim for input name '${inputName}' doesn't match 'state' dim description. ` +
          `${dim} != ${wanted}`,
      );
    }
  }
  if (initial.stateData.case === undefined) {
    add(path, `initial_state setting expects state'${inputName}' to have state_data set`);
  } else if (initial.stateData.case === "dataFile" && !isPathInside(initial.stateData.value)) {
    add(
      `${path}.data_file`,
      `initial_state file path '${initial.stateData.value}' for state input '${inputName}' is ` +
        `outside model directory`,
    );
  }
}
