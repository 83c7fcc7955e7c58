import { ServerError } from "../../proto/status.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import { type OvCompiledModel, OvError } from "../../ffi/openvino/mod.ts";
import type { BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import type { RunPlan } from "../onnx_run_plan.ts";
import { OpenVinoInstance } from "./instance.ts";
import type { OvPorts } from "./signature.ts";

/** What a model is made of. */
export interface OpenVinoModelParts {
  readonly name: string;
  readonly compiled: OvCompiledModel;
  /** Its inputs and outputs under the names of the configuration. */
  readonly ports: OvPorts;
  readonly plan: RunPlan;
  /** Bounds the runs in flight of all models. */
  readonly gate: CallGate;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
}

/** One compiled model; each instance has an infer request of its own. */
export class OpenVinoModel implements BackendModel {
  readonly name: string;
  readonly compiled: OvCompiledModel;
  readonly plan: RunPlan;
  readonly gate: CallGate;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
  /** Inputs the model cannot do without: all. */
  readonly requiredInputCount: number;
  /** Positions by name, as the library counts. */
  readonly inputIndices: ReadonlyMap<string, number>;
  readonly outputIndices: ReadonlyMap<string, number>;

  constructor(parts: OpenVinoModelParts) {
    this.name = parts.name;
    this.compiled = parts.compiled;
    this.plan = parts.plan;
    this.gate = parts.gate;
    this.now = parts.now;
    this.countBatchRetry = parts.countBatchRetry;
    this.requiredInputCount = parts.plan.inputs.size;
    this.inputIndices = new Map(parts.ports.inputs.map(({ name }, index) => [name, index]));
    this.outputIndices = new Map(parts.ports.outputs.map(({ name }, index) => [name, index]));
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    if (placement.kind === "KIND_GPU") {
      throw new ServerError(
        "UNSUPPORTED",
        `instance '${placement.name}' of model '${this.name}' cannot have KIND_GPU: with backend ` +
          `'openvino' the parameter TARGET_DEVICE chooses the device (CPU, GPU, NPU, AUTO), and ` +
          `instances are of KIND_CPU`,
      );
    }
    try {
      return new OpenVinoInstance(this, placement, await this.compiled.createInferRequest());
    } catch (error) {
      throw openVinoError(error, "creating an infer request");
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.compiled[Symbol.dispose]();
    return Promise.resolve();
  }
}

/** A failure of the runtime for whoever asked; anything else as it is. */
export function openVinoError(error: unknown, stage: string): ServerError {
  if (!(error instanceof OvError)) return ServerError.from(error);
  const message = `openvino error in ${stage}: ${error.message}`;
  return new ServerError("INTERNAL", message, { cause: error });
}
