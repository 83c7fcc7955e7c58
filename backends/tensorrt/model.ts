import { ServerError } from "../../proto/status.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import type { BackendLog, BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import type { DeviceMemory } from "../device_list.ts";
import { checkConfig } from "./config_check.ts";
import type { EngineStore, HeldEngine } from "./engine_store.ts";
import { TensorRtInstance } from "./instance.ts";
import { createMachine } from "./instance_setup.ts";
import { planError } from "./open_engine.ts";
import { chooseProfiles, findGroup } from "./profile.ts";
import { createRunPlan } from "./run_plan.ts";

/** What a model is made of. */
export interface TensorRtModelParts {
  readonly name: string;
  readonly config: ModelConfig;
  readonly engines: EngineStore;
  /** Keeps the engine that was opened for the checks until the model goes. */
  readonly held: HeldEngine;
  readonly gate: CallGate;
  readonly log: BackendLog;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
  readonly pinnedBudget: DeviceMemory["pinned"] | undefined;
  /** Passes TensorRT's log on. */
  readonly passLog: () => void;
}

const STRATEGIES: ReadonlyMap<string, number> = new Map([["STATIC", 0], ["ON_PROFILE_CHANGE", 1]]);
const STRATEGY_KEY = "execution_context_allocation_strategy";

/** One loaded plan. */
export class TensorRtModel implements BackendModel {
  readonly #parts: TensorRtModelParts;

  constructor(parts: TensorRtModelParts) {
    this.#parts = parts;
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const { name, config, engines, gate, log, now, countBatchRetry, passLog } = this.#parts;
    if (placement.kind === "KIND_CPU") {
      throw new ServerError(
        "UNSUPPORTED",
        `instance '${placement.name}' of model '${name}' cannot run on a CPU: plans run on GPUs, ` +
          `expected instance_group { kind: KIND_GPU }`,
      );
    }
    const group = findGroup(config, placement);
    const dla = group?.secondaryDevices[0]?.deviceId;
    const { deviceId } = placement;
    const allocationStrategy = readStrategy(config, name, log);
    const held = await engines.acquire({
      deviceId,
      dlaCore: dla === undefined ? undefined : Number(dla),
    });
    try {
      const { signature } = held.engine;
      // Another device may have another plan (cc_model_filenames).
      if (held.engine !== this.#parts.held.engine) checkConfig(config, signature, name);
      const plan = createRunPlan(config, signature, name);
      const profiles = chooseProfiles(group, signature, name);
      const { machine, dispose } = await createMachine({
        placement,
        config,
        plan,
        held,
        profiles,
        allocationStrategy,
        gate,
        log,
        pinnedBudget: this.#parts.pinnedBudget,
      });
      return new TensorRtInstance({ placement, machine, now, countBatchRetry, dispose });
    } catch (error) {
      await held.release();
      throw planError(error, placement.name, held.slot.runtime.library.version.text);
    } finally {
      passLog();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.held.release();
    this.#parts.passLog();
  }
}

function readStrategy({ parameters }: ModelConfig, modelName: string, log: BackendLog): number {
  const text = parameters[STRATEGY_KEY]?.stringValue;
  if (text === undefined) return 0;
  const strategy = STRATEGIES.get(text);
  if (strategy === undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `Invalid value for '${STRATEGY_KEY}': '${text}' for model instance '${modelName}'; expected ` +
        [...STRATEGIES.keys()].join(" or "),
    );
  }
  log.verbose(1, `'${STRATEGY_KEY}' set to '${text}' for model instance '${modelName}'`);
  return strategy;
}
