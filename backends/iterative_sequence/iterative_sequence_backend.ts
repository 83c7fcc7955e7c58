import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { Backend, BackendContext } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { checkConfiguredTensors } from "../configured_tensors.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { IterativeSequenceInstance } from "./instance.ts";

const INTEGER = { dataType: DataType.TYPE_INT32, dims: [1n] } as const;

/**
 * The test backend for iterative sequences: turn k of a request with INPUT n answers OUTPUT n − k and asks for another
 * turn while that is above zero. Parameters as in {@linkcode ExecutionPace}.
 */
export function createIterativeSequenceBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("iterative_sequence", ({ config }) => {
    checkConfiguredTensors(config, "iterative_sequence", {
      inputs: [{ name: "INPUT", ...INTEGER }],
      outputs: [{ name: "OUTPUT", ...INTEGER }],
    });
    const pace = new ExecutionPace(config, timers);
    const parts = { pace, now, isIterative: isIterative(config) };
    return (placement) => new IterativeSequenceInstance(placement, parts);
  });
}

function isIterative({ schedulingChoice }: ModelConfig): boolean {
  return schedulingChoice.case === "sequenceBatching" && schedulingChoice.value.iterativeSequence;
}
