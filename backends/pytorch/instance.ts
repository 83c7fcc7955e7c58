import { ServerError } from "../../proto/status.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import {
  INPUTS_ARE_DICT,
  TorchError,
  type TorchModule,
  type TorchValue,
} from "../../ffi/pytorch/mod.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { canMerge, mergeInputs, type MergeTarget, wantedOutputs } from "../onnx_merge_inputs.ts";
import type { RunPlan } from "../onnx_run_plan.ts";
import { shareOutputs } from "../onnx_share_outputs.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import type { Naming } from "./naming.ts";
import { cutRows, leastRowsIn, padRows } from "./row_padding.ts";
import { torchInput, torchOutput } from "./tensors.ts";

/** What the runs of a model have in common. */
export interface TorchRunParts {
  readonly name: string;
  readonly plan: RunPlan;
  readonly naming: Naming;
  /** Bits of `switchBits`. */
  readonly switches: number;
  readonly gate: CallGate;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
}

/** Runs requests on a module: its own, or one that others run on as well. */
export class TorchInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: TorchRunParts;
  readonly #module: TorchModule;
  readonly #close: () => void;
  readonly #target: MergeTarget;
  readonly #switches: number;
  /** Rows that the code of a package wants, as far as it told. */
  #leastRows = 0;

  constructor(
    parts: TorchRunParts,
    { placement, module, close }: {
      readonly placement: InstancePlacement;
      readonly module: TorchModule;
      readonly close: () => void;
    },
  ) {
    this.#parts = parts;
    this.placement = placement;
    this.#module = module;
    this.#close = close;
    const { name, plan, naming } = parts;
    const required = [...plan.inputs.values()].filter(({ isRequired }) => isRequired);
    this.#target = { name, plan, requiredInputCount: required.length };
    this.#switches = parts.switches | (naming.inputsAreDict ? INPUTS_ARE_DICT : 0);
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
    const { plan, gate, now } = this.#parts;
    const times = { inputEndMs: 0, outputStartMs: 0 };
    let outcomes: ExecuteOutcome[];
    try {
      const inputs = this.#inputs(requests);
      times.inputEndMs = times.outputStartMs = now();
      const turn = gate.enter();
      if (turn !== undefined) await turn;
      let results: TorchValue[];
      try {
        if (requests.every(({ signal }) => signal?.aborted)) throw cancelled();
        results = await this.#forward(inputs, requests);
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

  /** Packages may want more rows than there are: they get some twice, which is right where rows are independent. */
  async #forward(
    inputs: readonly TorchValue[],
    requests: readonly ExecuteRequest[],
  ): Promise<TorchValue[]> {
    const least = this.#leastRows;
    if (least > 0) {
      const rows = requests.reduce((sum, { batchSize }) => sum + batchSize, 0);
      if (rows > 0 && rows < least) {
        const sizes = { rows, least };
        return cutRows(await this.#module.forward(padRows(inputs, sizes), this.#switches), sizes);
      }
    }
    try {
      return await this.#module.forward(inputs, this.#switches);
    } catch (error) {
      const wanted = this.#parts.plan.isBatching && error instanceof TorchError
        ? leastRowsIn(error)
        : undefined;
      if (wanted === undefined || wanted <= least) throw error;
      this.#leastRows = wanted;
      return await this.#forward(inputs, requests);
    }
  }

  #inputs(requests: readonly ExecuteRequest[]): TorchValue[] {
    const { name: model, naming } = this.#parts;
    const merged = new Map(
      mergeInputs(this.#target, requests).map((each) => [each.plan.name, each]),
    );
    return naming.inputs.flatMap(({ name, argument, isOptional }) => {
      const input = merged.get(name);
      if (input !== undefined) return [torchInput(input, argument)];
      if (isOptional) return [];
      throw new ServerError("INVALID_ARG", `model '${model}' cannot run without input '${name}'`);
    });
  }

  #output(name: string, results: readonly TorchValue[]): CollectedOutput {
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
      tensor: torchOutput(plan.outputs.get(name)!, found, plan.isBatching),
      release: undefined,
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#close();
    return Promise.resolve();
  }
}

function cancelled(): ServerError {
  return new ServerError("CANCELLED", "Request cancelled while it was executed");
}
