import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { formatShape } from "../../proto/tensor.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  InstancePlacement,
  ModelInstance,
  ModelSource,
} from "../backend.ts";
import { IdentityInstance, type IdentityRules } from "./instance.ts";

/**
 * The test backend: output k is input k, byte for byte and without a copy. Parameters: `execute_delay_ms`,
 * `instance_wise_delay_multiplier`, `creation_delay_sec`, and `fail_every` (every so many requests one fails).
 */
export class IdentityBackend implements Backend {
  readonly name = "identity";
  readonly preference = { kind: "KIND_CPU", count: 1 } as const;
  readonly #context: BackendContext;

  constructor(context: BackendContext) {
    this.#context = context;
  }

  /** There is nothing to complete from: the configuration is all there is of the model. */
  autoComplete(_source: ModelSource): Promise<void> {
    return Promise.resolve();
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    checkPairs(source.config);
    const model = new IdentityModel(readRules(source.config), this.#context.now);
    await pause(readNumber(source.config, "creation_delay_sec") * 1000);
    return model;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

class IdentityModel implements BackendModel {
  readonly #rules: IdentityRules;
  readonly #now: () => number;
  #requestCount = 0;

  constructor(rules: IdentityRules, now: () => number) {
    this.#rules = rules;
    this.#now = now;
  }

  createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const instance = new IdentityInstance(placement, this.#rules, {
      now: this.#now,
      countRequest: () => ++this.#requestCount,
    });
    return Promise.resolve(instance);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

/** @throws ServerError INVALID_ARG unless inputs and outputs are pairs of one datatype and shape. */
function checkPairs(config: ModelConfig): void {
  const { input: inputs, output: outputs, name } = config;
  if (inputs.length === 0 || inputs.length !== outputs.length) {
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

function readRules(config: ModelConfig): IdentityRules {
  const failEvery = readNumber(config, "fail_every");
  return {
    inputOf: new Map(
      config.output.map(({ name }, index) => [name, config.input[index]?.name ?? ""]),
    ),
    executeDelayMs: readNumber(config, "execute_delay_ms"),
    delayMultiplier: readNumber(config, "instance_wise_delay_multiplier"),
    ...(failEvery > 0 ? { failEvery } : {}),
  };
}

/** @throws ServerError INVALID_ARG naming the parameter when its value is no number from 0 on. */
function readNumber(config: ModelConfig, key: string): number {
  const text = config.parameters[key]?.stringValue;
  if (text === undefined || text === "") return 0;
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new ServerError(
    "INVALID_ARG",
    `parameter '${key}' of model '${config.name}' must be a number from 0 on, got '${text}'`,
  );
}

function pause(delayMs: number): Promise<void> | undefined {
  if (delayMs <= 0) return undefined;
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}
