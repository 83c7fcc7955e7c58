import { ServerError } from "../../proto/status.ts";
import type { Datatype } from "../../proto/datatype.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import { allocateAligned } from "../../ffi/memory.ts";
import {
  SCALAR_TYPE,
  TorchError,
  type TorchInput,
  type TorchModule,
  type TorchOutput,
  type TorchRunOptions,
} from "../../ffi/pytorch/mod.ts";
import type {
  BackendModel,
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { joinBytes, joinedByteSize } from "../batch.ts";
import { canMerge, type MergedInput, mergeInputs, wantedOutputs } from "../onnx_merge_inputs.ts";
import type { OutputPlan, RunPlan } from "../onnx_run_plan.ts";
import { shareOutputs } from "../onnx_share_outputs.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import type { Naming } from "./naming.ts";

const SCALAR_TYPE_OF: Readonly<Partial<Record<Datatype, number>>> = {
  BOOL: SCALAR_TYPE.bool,
  UINT8: SCALAR_TYPE.uint8,
  INT8: SCALAR_TYPE.int8,
  INT16: SCALAR_TYPE.int16,
  INT32: SCALAR_TYPE.int32,
  INT64: SCALAR_TYPE.int64,
  FP16: SCALAR_TYPE.float16,
  FP32: SCALAR_TYPE.float32,
  FP64: SCALAR_TYPE.float64,
  BF16: SCALAR_TYPE.bfloat16,
};

/** What a model is made of. */
export interface TorchModelParts {
  readonly name: string;
  readonly module: TorchModule;
  readonly plan: RunPlan;
  readonly naming: Naming;
  readonly options: TorchRunOptions;
  readonly gate: CallGate;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
}

/** One loaded TorchScript model, on which its instances run at the same time. */
export class TorchModel implements BackendModel {
  readonly parts: TorchModelParts;

  constructor(parts: TorchModelParts) {
    this.parts = parts;
  }

  createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    if (placement.kind === "KIND_GPU") {
      return Promise.reject(
        new ServerError(
          "UNSUPPORTED",
          `instance '${placement.name}' of model '${this.parts.name}' cannot run on a GPU: ` +
            `TorchScript models run on CPUs only`,
        ),
      );
    }
    return Promise.resolve(new TorchInstance(this.parts, placement));
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.parts.module[Symbol.dispose]();
    return Promise.resolve();
  }
}

class TorchInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: TorchModelParts;

  constructor(parts: TorchModelParts, placement: InstancePlacement) {
    this.#parts = parts;
    this.placement = placement;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    if (requests.length > 1 && !canMerge(this.#parts.plan, requests)) {
      return await this.#executeEach(requests);
    }
    const report = await this.#run(requests);
    if (requests.length === 1 || !report.outcomes.some((each) => "error" in each)) return report;
    this.#parts.countBatchRetry();
    return await this.#executeEach(requests);
  }

  /** Runs the requests one after the other, so that a failure stays with the request that causes it. */
  async #executeEach(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const reports: ExecuteReport[] = [];
    for (const request of requests) reports.push(await this.#run([request]));
    return {
      outcomes: reports.flatMap(({ outcomes }) => outcomes),
      inputEndMs: reports[0]!.inputEndMs,
      outputStartMs: reports.at(-1)!.outputStartMs,
    };
  }

  async #run(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { name, module, plan, naming, options, gate, now } = this.#parts;
    const times = { inputEndMs: 0, outputStartMs: 0 };
    let outcomes: ExecuteOutcome[];
    try {
      const target = { name, plan, requiredInputCount: plan.inputs.size };
      const merged = new Map(mergeInputs(target, requests).map((each) => [each.plan.name, each]));
      const inputs = naming.inputOrder.map((each) => torchInput(merged.get(each)!));
      times.inputEndMs = times.outputStartMs = now();
      const turn = gate.enter();
      if (turn !== undefined) await turn;
      let results: TorchOutput[];
      try {
        if (requests.every(({ signal }) => signal?.aborted)) throw cancelled();
        results = await module.forward(inputs, options);
      } finally {
        gate.leave();
      }
      times.outputStartMs = now();
      const outputs = wantedOutputs(requests).map((each) => this.#output(each, results));
      outcomes = shareOutputs(plan, outputs, requests);
    } catch (reason) {
      const error = reason instanceof TorchError
        ? new ServerError("INTERNAL", `PyTorch execute failure: ${reason.message}`, {
          cause: reason,
        })
        : ServerError.from(reason);
      outcomes = requests.map(() => ({ error }));
    }
    const end = now();
    return {
      outcomes,
      inputEndMs: times.inputEndMs || end,
      outputStartMs: times.outputStartMs || end,
    };
  }

  #output(name: string, results: readonly TorchOutput[]): CollectedOutput {
    const { plan, naming, name: modelName } = this.#parts;
    const index = naming.outputIndices.get(name);
    const found = index === undefined ? results.find((each) => each.name === name) : results[index];
    if (found === undefined) {
      const there = results.map((each, position) => each.name || `OUTPUT__${position}`).join(", ");
      throw new ServerError(
        "INTERNAL",
        `model '${modelName}' returned no output '${name}', it returned: ${there || "nothing"}`,
      );
    }
    return {
      tensor: toTensor(plan.outputs.get(name)!, found, plan.isBatching),
      release: undefined,
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

/** A copy: a model may write on its arguments, and return them. */
function torchInput({ plan, parts, shape }: MergedInput): TorchInput {
  const byteSize = joinedByteSize(parts);
  const isText = plan.datatype === "BYTES";
  const expected = shape.reduce((product, dim) => product * dim, plan.elementSize);
  if (!isText && byteSize !== expected) {
    throw new ServerError(
      "INVALID_ARG",
      `input '${plan.name}' has ${byteSize} bytes, its shape and datatype tell ${expected}`,
    );
  }
  const data = allocateAligned(byteSize).subarray(0, byteSize);
  joinBytes(parts, data);
  const scalarType = SCALAR_TYPE_OF[plan.datatype] ?? 0;
  return { name: plan.name, kind: isText ? "strings" : "tensor", scalarType, shape, data };
}

function toTensor(plan: OutputPlan, found: TorchOutput, isBatching: boolean): Tensor {
  const { name, datatype } = plan;
  const isText = datatype === "BYTES";
  if (
    isText !== (found.kind === "strings") ||
    (!isText && SCALAR_TYPE_OF[datatype] !== found.scalarType)
  ) {
    const types = Object.entries(SCALAR_TYPE);
    const type = found.kind === "strings"
      ? "strings"
      : types.find(([, code]) => code === found.scalarType)?.[0] ?? `type ${found.scalarType}`;
    throw new ServerError(
      "INVALID_ARG",
      `configuration expects datatype ${datatype} for output '${name}', the model returned ${type}`,
    );
  }
  const shape = isText && isBatching ? [...found.shape, 1] : found.shape;
  return { name, datatype, shape, data: found.data };
}

function cancelled(): ServerError {
  return new ServerError("CANCELLED", "Request cancelled while it was executed");
}
