import {
  DataType,
  type ModelConfig,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { Backend, BackendContext, ExecuteRequest } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { checkConfiguredTensors } from "../configured_tensors.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { PacedInstance } from "../paced_instance.ts";
import { addToState } from "./add_to_state.ts";

const INTEGER = { dataType: DataType.TYPE_INT32, dims: [1n] } as const;
const FLAG = { dataTypes: [DataType.TYPE_INT32, DataType.TYPE_FP32, DataType.TYPE_BOOL] } as const;

/**
 * The test backend for implicit state: OUTPUT = INPUT + INPUT_STATE, and what becomes of the state is told by
 * TEST_CASE: 0 asks for a state that is not there, 1 does not update it, 2 makes OUTPUT the new OUTPUT_STATE,
 * 3 asks for memory that grows, which needs a GPU. Parameters as in {@linkcode ExecutionPace}.
 */
export function createImplicitStateBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("implicit_state", ({ config }) => {
    checkImplicitState(config);
    const pace = new ExecutionPace(config, timers);
    const model = { name: config.name, hasStates: hasStates(config) };
    const answer = (request: ExecuteRequest) => addToState(request, model);
    return (placement) => new PacedInstance(placement, { pace, now, answer });
  });
}

function checkImplicitState(config: ModelConfig): void {
  const state = statesOf(config).find(({ inputName }) => inputName === "INPUT_STATE");
  const stateOutput = config.output.find(({ name }) => name === "OUTPUT_STATE");
  checkConfiguredTensors(config, "implicit_state", {
    inputs: [{ name: "INPUT", ...INTEGER }, { name: "TEST_CASE", ...INTEGER }],
    outputs: [
      { name: "OUTPUT", ...INTEGER },
      ...stateOutput === undefined ? [] : [{ name: "OUTPUT_STATE", ...INTEGER }],
    ],
    controls: [
      { name: "START", kind: ControlKind.CONTROL_SEQUENCE_START, ...FLAG },
      { name: "END", kind: ControlKind.CONTROL_SEQUENCE_END, ...FLAG },
      { name: "READY", kind: ControlKind.CONTROL_SEQUENCE_READY, ...FLAG },
    ],
  });
  if (state === undefined || state.dataType === DataType.TYPE_INT32) return;
  throw new ServerError(
    "INVALID_ARG",
    `model '${config.name}' cannot be served by backend 'implicit_state': expected state ` +
      `'INPUT_STATE' of TYPE_INT32, got ${DataType[state.dataType]}`,
  );
}

function statesOf({ schedulingChoice }: ModelConfig) {
  return schedulingChoice.case === "sequenceBatching" ? schedulingChoice.value.state : [];
}

function hasStates(config: ModelConfig): boolean {
  return statesOf(config).length > 0;
}
