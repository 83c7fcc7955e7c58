import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { Backend, BackendContext, ExecuteRequest, ExecuteResponse } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { checkConfiguredTensors } from "../configured_tensors.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { filledIntegers, findInput, readFirstInteger } from "../integer_tensor.ts";
import { readCountParameter, readNumberParameter } from "../model_parameters.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { StreamingInstance, type StreamPlan } from "../streaming_instance.ts";

/** What the parameters of a model tell. */
interface SquareRules {
  readonly inferDelayMs: number;
  readonly outputDelayMs: number;
  readonly cancelDelayMs: number;
  /** So many responses fail, before those that are empty. */
  readonly failCount: number;
  /** For so many at the end nothing is sent. */
  readonly emptyCount: number;
}

const INTEGER = { dataType: DataType.TYPE_INT32, dims: [1n] } as const;
const NANOSECONDS_PER_MS = 1e6;

/**
 * The decoupled test backend that answers n with n responses n. Parameters besides those of
 * {@linkcode ExecutionPace}: `CUSTOM_INFER_DELAY_NS` before each response is made, `CUSTOM_OUTPUT_DELAY_NS` before it
 * is sent, `CUSTOM_CANCEL_DELAY_NS` once the client has gone, `CUSTOM_FAIL_COUNT` and `CUSTOM_EMPTY_COUNT`.
 */
export function createSquareBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("square", ({ config }) => {
    checkConfiguredTensors(config, "square", {
      inputs: [{ name: "IN", ...INTEGER }],
      outputs: [{ name: "OUT", ...INTEGER }],
    });
    const pace = new ExecutionPace(config, timers);
    const rules = readRules(config);
    const plan = (request: ExecuteRequest) => planSquare(request, rules);
    return (placement) => new StreamingInstance(placement, { pace, now, timers, plan });
  });
}

function readRules(config: ModelConfig): SquareRules {
  const delayMs = (key: string) => readNumberParameter(config, key) / NANOSECONDS_PER_MS;
  return {
    inferDelayMs: delayMs("CUSTOM_INFER_DELAY_NS"),
    outputDelayMs: delayMs("CUSTOM_OUTPUT_DELAY_NS"),
    cancelDelayMs: delayMs("CUSTOM_CANCEL_DELAY_NS"),
    failCount: readCountParameter(config, "CUSTOM_FAIL_COUNT"),
    emptyCount: readCountParameter(config, "CUSTOM_EMPTY_COUNT"),
  };
}

function planSquare(request: ExecuteRequest, rules: SquareRules): StreamPlan {
  const input = findInput(request, "IN");
  if (request.batchSize !== 1) {
    throw new ServerError("INVALID_ARG", "unexpected shape for IN input");
  }
  const count = readFirstInteger(input);
  if (count < 0) {
    throw new ServerError("INVALID_ARG", `expected IN to be a number from 0 on, got ${count}`);
  }
  const respond = (index: number): ExecuteResponse | undefined => {
    const fromEnd = count - rules.emptyCount;
    if (index >= fromEnd) return undefined;
    if (index >= fromEnd - rules.failCount) {
      return { error: new ServerError("UNKNOWN", "simulated failure") };
    }
    return { outputs: [filledIntegers("OUT", input.shape, count)] };
  };
  const { inferDelayMs, outputDelayMs, cancelDelayMs } = rules;
  const stream = {
    count,
    delayMs: () => inferDelayMs,
    sendDelayMs: outputDelayMs,
    cancelDelayMs,
    respond,
  };
  return { stream, occupiedMs: 0 };
}
