import type { CallGate } from "../../ffi/call_gate.ts";
import type { OrtSession } from "../../ffi/onnxruntime/mod.ts";
import type { BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import { OnnxInstance } from "./instance.ts";
import { NameCache } from "./native_run.ts";
import { OutputPool } from "./output_pool.ts";
import type { MergedInput } from "../onnx_merge_inputs.ts";
import type { SessionMemory } from "./session_memory.ts";
import type { RunPace } from "./run_pace.ts";
import type { OutputPlan, RunPlan } from "../onnx_run_plan.ts";

/** What a model is made of. */
export interface OnnxModelParts {
  readonly name: string;
  readonly session: OrtSession;
  readonly plan: RunPlan;
  readonly runEntries: Readonly<Record<string, string>>;
  /** Bounds the runs in flight of all models. */
  readonly gate: CallGate;
  readonly pace: RunPace;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
  /** Memory of the GPU it runs on; absent = it runs on none. The model disposes it. */
  readonly memory?: SessionMemory | undefined;
  /** Gives memory of an unloaded model back to the system. */
  readonly trimMemory: () => Promise<void>;
}

/** One ONNX model on one device: a session, on which its instances run at the same time. */
export class OnnxModel implements BackendModel {
  readonly name: string;
  readonly session: OrtSession;
  readonly plan: RunPlan;
  readonly runEntries: Readonly<Record<string, string>>;
  readonly gate: CallGate;
  readonly pace: RunPace;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
  readonly memory: SessionMemory | undefined;
  /** Inputs the model cannot do without. */
  readonly requiredInputCount: number;
  readonly inputNames = new NameCache();
  readonly outputNames = new NameCache();
  readonly #trimMemory: () => Promise<void>;
  readonly #pools = new Map<string, OutputPool>();
  #lastNames: readonly string[] = [];

  constructor(parts: OnnxModelParts) {
    this.name = parts.name;
    this.session = parts.session;
    this.plan = parts.plan;
    this.runEntries = parts.runEntries;
    this.gate = parts.gate;
    this.pace = parts.pace;
    this.now = parts.now;
    this.countBatchRetry = parts.countBatchRetry;
    this.memory = parts.memory;
    this.#trimMemory = parts.trimMemory;
    const inputs = [...parts.plan.inputs.values()];
    this.requiredInputCount = inputs.filter(({ isRequired }) => isRequired).length;
    for (const output of parts.plan.outputs.values()) {
      if (output.dims === undefined) continue;
      const pool = new OutputPool(parts.session.environment, output.elementType);
      this.#pools.set(output.name, pool);
    }
  }

  /** Where buffers for an output of foreseeable shape come from; undefined when the runtime allocates it. */
  outputPool(output: OutputPlan): OutputPool | undefined {
    return this.#pools.get(output.name);
  }

  /** Called when an output turned out to have another shape than foreseen: the runtime allocates it from now on. */
  distrustDims(outputName: string): void {
    this.#pools.get(outputName)?.[Symbol.dispose]();
    this.#pools.delete(outputName);
  }

  /** The names of the inputs; the same array as for the run before when it had the same inputs. */
  nameList(inputs: readonly MergedInput[]): readonly string[] {
    const last = this.#lastNames;
    if (last.length === inputs.length && inputs.every(({ plan }, i) => plan.name === last[i])) {
      return last;
    }
    return this.#lastNames = inputs.map(({ plan }) => plan.name);
  }

  createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    return Promise.resolve(new OnnxInstance(this, placement));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pool of this.#pools.values()) pool[Symbol.dispose]();
    this.#pools.clear();
    this.session[Symbol.dispose]();
    this.memory?.memory[Symbol.dispose]();
    await this.#trimMemory();
  }
}
