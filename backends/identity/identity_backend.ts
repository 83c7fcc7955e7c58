import { datatypeOfConfig } from "../../proto/datatype.ts";
import { DataType, type ModelConfig, type ModelInput } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { formatShape } from "../../proto/tensor.ts";
import type { Backend, BackendContext, ExecuteRequest } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { CPU_OFFER, offerGpus } from "../device_list.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { PacedInstance } from "../paced_instance.ts";
import { noteActivities, readCustomActivities } from "./custom_activities.ts";
import { echo, type IdentityModel, type Zeros } from "./echo.ts";

/**
 * The test backend: output k is input k, byte for byte and without a copy, or zeros when the input is optional and
 * left out. Parameters as in {@linkcode ExecutionPace}, `creation_delay_sec`, and those of
 * {@linkcode readCustomActivities}.
 */
export function createIdentityBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  const backend = createConfiguredBackend("identity", ({ config }) => {
    checkPairs(config);
    const pace = new ExecutionPace(config, timers);
    const inputOf = new Map(
      config.output.map(({ name }, index) => [name, config.input[index]?.name ?? ""]),
    );
    const optionals = new Map(
      config.input.filter(({ optional }) => optional).map((input) => [input.name, zerosOf(input)]),
    );
    const model: IdentityModel = { inputOf, optionals, isBatching: config.maxBatchSize > 0 };
    const answer = (request: ExecuteRequest) => echo(request, model);
    const activities = readCustomActivities(config);
    const onExecuted = activities === undefined
      ? undefined
      : (requests: readonly ExecuteRequest[], startMs: number) =>
        noteActivities(requests, activities, startMs);
    return (placement) => new PacedInstance(placement, { pace, now, answer, onExecuted });
  });
  // Nothing is computed, so that every device is as good as another.
  return { ...backend, kinds: async (devices) => [offerGpus(await devices.gpus()), CPU_OFFER] };
}

/** Stands for an optional input that a request leaves out; dimensions of any size are 1. */
function zerosOf({ name, dataType, dims, reshape }: ModelInput): Zeros {
  const datatype = datatypeOfConfig(dataType);
  if (datatype === undefined) {
    throw new ServerError("INVALID_ARG", `input '${name}' has no datatype, got ${dataType}`);
  }
  return { datatype, dims: (reshape?.shape ?? dims).map((dim) => dim < 0n ? 1 : Number(dim)) };
}

/** @throws ServerError INVALID_ARG unless inputs and outputs are pairs of one datatype and shape. */
function checkPairs(config: ModelConfig): void {
  const { input: inputs, output: outputs, name } = config;
  if (inputs.length !== outputs.length) {
    throw new ServerError(
      "INVALID_ARG",
      `expected as many outputs as inputs for identity model '${name}', got ${inputs.length} ` +
        `inputs and ${outputs.length} outputs`,
    );
  }
  inputs.forEach((input, index) => {
    const output = outputs[index]!;
    if (input.dataType !== output.dataType) {
      throw new ServerError(
        "INVALID_ARG",
        `expected output '${output.name}' of identity model '${name}' to be ` +
          `${DataType[input.dataType]} like input '${input.name}', got ${
            DataType[output.dataType]
          }`,
      );
    }
    const inputShape = formatShape(input.reshape?.shape ?? input.dims);
    const outputShape = formatShape(output.reshape?.shape ?? output.dims);
    if (inputShape !== outputShape) {
      throw new ServerError(
        "INVALID_ARG",
        `expected output '${output.name}' of identity model '${name}' to have the shape ` +
          `${inputShape} of input '${input.name}', got ${outputShape}`,
      );
    }
  });
}
