import {
  DataType,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import type { Backend, BackendContext } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { checkConfiguredTensors } from "../configured_tensors.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { DynaSequenceInstance } from "./instance.ts";

const INTEGERS = { dataType: DataType.TYPE_INT32 } as const;
const FLAG = { dataTypes: [DataType.TYPE_INT32] } as const;

/**
 * The test backend for sequences anywhere in a batch: OUTPUT is filled with the sum of all elements of INPUT that the
 * sequence with that correlation id has sent; its last request adds the id. Parameters as in
 * {@linkcode ExecutionPace}.
 */
export function createDynaSequenceBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("dyna_sequence", ({ config }) => {
    checkConfiguredTensors(config, "dyna_sequence", {
      inputs: [{ name: "INPUT", ...INTEGERS }],
      outputs: [{ name: "OUTPUT", ...INTEGERS }],
      controls: [
        { name: "START", kind: ControlKind.CONTROL_SEQUENCE_START, ...FLAG },
        { name: "END", kind: ControlKind.CONTROL_SEQUENCE_END, ...FLAG },
        { name: "READY", kind: ControlKind.CONTROL_SEQUENCE_READY, ...FLAG },
        {
          name: "CORRID",
          kind: ControlKind.CONTROL_SEQUENCE_CORRID,
          dataTypes: [DataType.TYPE_UINT64, DataType.TYPE_STRING],
        },
      ],
    });
    const pace = new ExecutionPace(config, timers);
    const batchSizeMax = Math.max(1, config.maxBatchSize);
    return (placement) => new DynaSequenceInstance(placement, { pace, now, batchSizeMax });
  });
}
