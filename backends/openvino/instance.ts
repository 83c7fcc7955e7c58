import { ServerError } from "../../proto/status.ts";
import { INFER_CANCELLED, type OvInferRequest } from "../../ffi/openvino/mod.ts";
import { watchAborts } from "../abort_watch.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { canMerge, mergeInputs, wantedOutputs } from "../onnx_merge_inputs.ts";
import { shareOutputs } from "../onnx_share_outputs.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import { InputFeed } from "./input_feed.ts";
import { openVinoError, type OpenVinoModel } from "./model.ts";

/** An infer request, in which batches of a model run one after the other. */
export class OpenVinoInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #model: OpenVinoModel;
  readonly #request: OvInferRequest;
  readonly #feed: InputFeed;

  constructor(model: OpenVinoModel, placement: InstancePlacement, request: OvInferRequest) {
    this.#model = model;
    this.placement = placement;
    this.#request = request;
    this.#feed = new InputFeed(model.compiled.runtime, request);
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    if (requests.length > 1 && !canMerge(this.#model.plan, requests)) {
      return await this.#executeEach(requests);
    }
    const result = await this.#run(requests);
    if (!("error" in result)) return result;
    const { error, inputEndMs, outputStartMs } = result;
    if (requests.length > 1 && error.code !== "CANCELLED") {
      this.#model.countBatchRetry();
      return await this.#executeEach(requests);
    }
    return { outcomes: requests.map(() => ({ error })), inputEndMs, outputStartMs };
  }

  /** Runs the requests one after the other, so that a failure stays with the request that causes it. */
  async #executeEach(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const outcomes: ExecuteOutcome[] = [];
    let inputEndMs: number | undefined;
    let outputStartMs = 0;
    for (const request of requests) {
      if (request.signal?.aborted) {
        outcomes.push({ error: cancelled() });
        continue;
      }
      const result = await this.#run([request]);
      inputEndMs ??= result.inputEndMs;
      outputStartMs = result.outputStartMs;
      if ("error" in result) outcomes.push({ error: result.error });
      else outcomes.push(...result.outcomes);
    }
    const now = this.#model.now();
    return { outcomes, inputEndMs: inputEndMs ?? now, outputStartMs: outputStartMs || now };
  }

  async #run(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | FailedRun> {
    const model = this.#model;
    const times = { inputEndMs: 0, outputStartMs: 0 };
    try {
      for (const input of mergeInputs(model, requests)) {
        this.#feed.feed(model.inputIndices.get(input.plan.name)!, input);
      }
      times.inputEndMs = times.outputStartMs = model.now();
      const error = await this.#infer(requests);
      times.outputStartMs = model.now();
      if (error !== undefined) throw error;
      const result = this.#collect(wantedOutputs(requests));
      return { outcomes: shareOutputs(model.plan, result, requests), ...times };
    } catch (reason) {
      const now = model.now();
      return {
        error: openVinoError(reason, "running the model"),
        inputEndMs: times.inputEndMs || now,
        outputStartMs: times.outputStartMs || now,
      };
    } finally {
      this.#feed.release();
    }
  }

  async #infer(requests: readonly ExecuteRequest[]): Promise<Error | undefined> {
    const { gate } = this.#model;
    const turn = gate.enter();
    if (turn !== undefined) await turn;
    const aborts = watchAborts(requests, () => this.#request.cancel());
    try {
      if (aborts.areAll()) return cancelled();
      const error = await this.#request.infer();
      return error?.status === INFER_CANCELLED && aborts.areAll() ? cancelled() : error;
    } finally {
      aborts.end();
      gate.leave();
    }
  }

  #collect(names: readonly string[]): CollectedOutput[] {
    const { plan, outputIndices, name: modelName } = this.#model;
    return names.map((name) => {
      const output = plan.outputs.get(name);
      if (output === undefined) {
        throw new ServerError("INTERNAL", `model '${modelName}' has no output '${name}'`);
      }
      const { shape, data } = this.#request.readOutput(outputIndices.get(name)!);
      const tensor = { name, datatype: output.datatype, shape, data };
      return { tensor, release: undefined };
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#request[Symbol.dispose]();
    this.#feed[Symbol.dispose]();
    return Promise.resolve();
  }
}

interface FailedRun {
  readonly error: ServerError;
  readonly inputEndMs: number;
  readonly outputStartMs: number;
}

function cancelled(): ServerError {
  return new ServerError("CANCELLED", "Request cancelled while it was executed");
}
