import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { TF_DATA_TYPE, type TfFeed, TfTensor } from "../../ffi/tensorflow/mod.ts";
import type {
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { joinedByteSize } from "../batch.ts";
import { cancelledWhileExecuted, executeBatch, type FailedRun } from "../onnx_execute_batch.ts";
import { type MergedInput, mergeInputs, wantedOutputs } from "../onnx_merge_inputs.ts";
import { shareOutputs } from "../onnx_share_outputs.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import { type BoundSession, tensorFlowError, type TensorFlowModelParts } from "./model.ts";
import { tfDataTypeOf } from "./signature.ts";
import { stringElements } from "./string_elements.ts";

/** An input as a run is fed with it. */
type Feed = TfFeed & Disposable;

/** Runs batches of a model in a session, one after the other. */
export class TensorFlowInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: TensorFlowModelParts;
  readonly #bound: BoundSession;
  readonly #leave: () => Promise<void>;
  readonly #requiredInputCount: number;

  constructor(
    parts: TensorFlowModelParts,
    placement: InstancePlacement,
    { bound, leave }: { readonly bound: BoundSession; readonly leave: () => Promise<void> },
  ) {
    this.#parts = parts;
    this.placement = placement;
    this.#bound = bound;
    this.#leave = leave;
    this.#requiredInputCount = parts.plan.inputs.size;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { plan, now, countBatchRetry } = this.#parts;
    return executeBatch({ plan, now, countBatchRetry, run: (batch) => this.#run(batch) }, requests);
  }

  async #run(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | FailedRun> {
    const { name, plan, now } = this.#parts;
    const times = { inputEndMs: 0, outputStartMs: 0 };
    using feeds = new DisposableStack();
    try {
      const target = { name, plan, requiredInputCount: this.#requiredInputCount };
      const inputs = mergeInputs(target, requests).map((input) => feeds.use(this.#feed(input)));
      times.inputEndMs = times.outputStartMs = now();
      const result = await this.#infer(inputs, requests);
      times.outputStartMs = now();
      return { outcomes: shareOutputs(plan, result, requests), ...times };
    } catch (reason) {
      const end = now();
      return {
        error: tensorFlowError(reason, `running model '${name}'`),
        inputEndMs: times.inputEndMs || end,
        outputStartMs: times.outputStartMs || end,
      };
    }
  }

  #feed({ plan, parts, shape }: MergedInput): Feed {
    const { runtime } = this.#bound.session;
    const port = this.#bound.inputs.get(plan.name)!;
    const dataType = tfDataTypeOf(plan.elementType);
    const count = shape.reduce((product, dim) => product * dim, 1);
    let tensor: TfTensor;
    if (dataType === TF_DATA_TYPE.STRING) {
      tensor = TfTensor.ofStrings(runtime, shape, stringElements(plan.name, parts, count));
    } else {
      checkByteSize(plan.name, parts, count * plan.elementSize);
      tensor = TfTensor.ofBytes(runtime, { dataType, shape }, parts.map(({ data }) => data));
    }
    return { port, tensor, [Symbol.dispose]: () => tensor[Symbol.dispose]() };
  }

  async #infer(
    inputs: readonly Feed[],
    requests: readonly ExecuteRequest[],
  ): Promise<CollectedOutput[]> {
    const { gate, plan, name: modelName } = this.#parts;
    const { session, outputs } = this.#bound;
    const names = wantedOutputs(requests);
    const ports = names.map((name) => {
      const port = outputs.get(name);
      if (port !== undefined) return port;
      throw new ServerError("INTERNAL", `model '${modelName}' has no output '${name}'`);
    });
    const turn = gate.enter();
    if (turn !== undefined) await turn;
    try {
      // A run cannot be stopped by the C interface.
      if (requests.every(({ signal }) => signal?.aborted)) throw cancelledWhileExecuted();
      const values = await session.run(inputs, ports);
      return values.map(({ dataType, shape, data }, index) => {
        const { name, datatype, elementType } = plan.outputs.get(names[index]!)!;
        if (dataType !== tfDataTypeOf(elementType)) {
          throw new ServerError(
            "INTERNAL",
            `output '${name}' of model '${modelName}' is not of datatype ${datatype}, which its ` +
              `signature tells`,
          );
        }
        return { tensor: { name, datatype, shape, data }, release: undefined };
      });
    } finally {
      gate.leave();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#leave();
  }
}

function checkByteSize(name: string, parts: readonly Tensor[], expected: number): void {
  const byteSize = joinedByteSize(parts);
  if (byteSize === expected) return;
  throw new ServerError(
    "INVALID_ARG",
    `input '${name}' has ${byteSize} bytes, its shape and datatype tell ${expected}`,
  );
}
