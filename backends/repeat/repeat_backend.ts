import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
import type { Backend, BackendContext, ExecuteRequest, ExecuteResponse } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { checkConfiguredTensors } from "../configured_tensors.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { filledIntegers, findInput, readIntegers, readUnsigned } from "../integer_tensor.ts";
import { readCountParameter, readNumberParameter } from "../model_parameters.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { StreamingInstance, type StreamPlan } from "../streaming_instance.ts";

/** What the parameters of a model tell. */
interface RepeatRules {
  /** Responses per request; 0 = one per element of IN. */
  readonly responseCount: number;
  /** Added to every DELAY. */
  readonly responseDelayMs: number;
  /** Every so many responses of a request one fails; 0 = none. */
  readonly failEvery: number;
  /** OUT as configured, with 1 for -1. */
  readonly outputShape: readonly number[];
}

/**
 * The decoupled test backend: response i has OUT = IN[i], in every element, and IDX = i, and comes DELAY[i] ms after
 * the one before; the instance is occupied for WAIT ms. Parameters besides those of {@linkcode ExecutionPace}:
 * `response_count` (so many responses, going round in IN), `response_delay_ms` (added to every DELAY) and
 * `response_fail_every`. OUT may have any fixed size: responses as large as wanted.
 */
export function createRepeatBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("repeat", ({ config }) => {
    checkRepeat(config);
    const pace = new ExecutionPace(config, timers);
    const rules = readRules(config);
    const plan = (request: ExecuteRequest) => planRepeat(request, rules);
    return (placement) => new StreamingInstance(placement, { pace, now, timers, plan });
  });
}

function checkRepeat(config: ModelConfig): void {
  if (config.maxBatchSize > 0) {
    throw new ServerError(
      "INVALID_ARG",
      `repeat backend only supports models with max_batch_size == 0, got ${config.maxBatchSize} ` +
        `for model '${config.name}'`,
    );
  }
  const output = config.output.find(({ name }) => name === "OUT");
  checkConfiguredTensors(config, "repeat", {
    inputs: [
      { name: "IN", dataType: DataType.TYPE_INT32 },
      { name: "DELAY", dataType: DataType.TYPE_UINT32 },
      { name: "WAIT", dataType: DataType.TYPE_UINT32, dims: [1n] },
    ],
    outputs: [
      { name: "OUT", dataType: DataType.TYPE_INT32, dims: output?.dims ?? [1n] },
      { name: "IDX", dataType: DataType.TYPE_UINT32, dims: [1n] },
    ],
  });
}

function readRules(config: ModelConfig): RepeatRules {
  const output = config.output.find(({ name }) => name === "OUT");
  const outputShape = (output?.dims ?? []).map((dim) => dim < 0n ? 1 : Number(dim));
  elementCount(outputShape, "output 'OUT'");
  return {
    responseCount: readCountParameter(config, "response_count"),
    responseDelayMs: readNumberParameter(config, "response_delay_ms"),
    failEvery: readCountParameter(config, "response_fail_every"),
    outputShape,
  };
}

function planRepeat(request: ExecuteRequest, rules: RepeatRules): StreamPlan {
  const values = readIntegers(findInput(request, "IN"));
  const delays = readUnsigned(findInput(request, "DELAY"));
  const waits = readUnsigned(findInput(request, "WAIT"));
  if (values.length !== delays.length) {
    throw new ServerError(
      "INVALID_ARG",
      `expected IN and DELAY shape to match, got [${values.length}] and [${delays.length}]`,
    );
  }
  if (waits.length !== 1) {
    throw new ServerError(
      "INVALID_ARG",
      `unexpected size for WAIT input: expected 1 element, got ${waits.length}`,
    );
  }
  const { responseCount, responseDelayMs, failEvery } = rules;
  const count = values.length === 0 ? 0 : responseCount || values.length;
  const respond = (index: number): ExecuteResponse => {
    if (failEvery > 0 && (index + 1) % failEvery === 0) {
      const message = `response ${index} fails: parameter 'response_fail_every' is ${failEvery}`;
      return { error: new ServerError("INTERNAL", message) };
    }
    const value = values[index % values.length]!;
    const made = [filledIntegers("OUT", rules.outputShape, value), indexTensor(index)];
    return { outputs: made.filter(({ name }) => request.outputs.includes(name)) };
  };
  const delayMs = (index: number) => delays[index % delays.length]! + responseDelayMs;
  return { stream: { count, delayMs, respond }, occupiedMs: waits[0]! };
}

function indexTensor(index: number): Tensor {
  const data = new Uint8Array(Uint32Array.of(index).buffer);
  return { name: "IDX", datatype: "UINT32", shape: [1], data };
}
