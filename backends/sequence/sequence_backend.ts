import {
  DataType,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import type { Backend, BackendContext } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { checkConfiguredTensors } from "../configured_tensors.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { SequenceInstance } from "./instance.ts";

const INTEGERS = { dataType: DataType.TYPE_INT32 } as const;
const FLAG = { dataTypes: [DataType.TYPE_INT32] } as const;

/**
 * The test backend for sequences in fixed slots: OUTPUT is filled with the sum of all elements of INPUT that the
 * sequence in that place of the batch has sent. Parameters as in {@linkcode ExecutionPace}.
 */
export function createSequenceBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("sequence", ({ config }) => {
    checkConfiguredTensors(config, "sequence", {
      inputs: [{ name: "INPUT", ...INTEGERS }],
      outputs: [{ name: "OUTPUT", ...INTEGERS }],
      controls: [
        { name: "START", kind: ControlKind.CONTROL_SEQUENCE_START, ...FLAG },
        { name: "READY", kind: ControlKind.CONTROL_SEQUENCE_READY, ...FLAG },
      ],
    });
    const pace = new ExecutionPace(config, timers);
    const slotCount = Math.max(1, config.maxBatchSize);
    return (placement) => new SequenceInstance(placement, { pace, now, slotCount });
  });
}
