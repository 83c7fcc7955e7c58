import { ServerError } from "../../proto/status.ts";
import { OrtRunOptions } from "../../ffi/onnxruntime/mod.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { watchAborts } from "./abort_watch.ts";
import { InputFeed } from "./input_feed.ts";
import type { OnnxModel } from "./model.ts";
import { RunArrays } from "./native_run.ts";
import { canMerge } from "../onnx_merge_inputs.ts";
import { prepareRun } from "./prepare_run.ts";
import { type RunResult, runSession } from "./run_session.ts";
import { shareOutputs } from "../onnx_share_outputs.ts";

/** One place in which batches of a model run; all instances of a model share its session. */
export class OnnxInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #model: OnnxModel;
  readonly #feed: InputFeed;
  readonly #options: OrtRunOptions;
  readonly #arrays = new RunArrays();

  constructor(model: OnnxModel, placement: InstancePlacement) {
    this.#model = model;
    this.placement = placement;
    const { environment } = model.session;
    this.#feed = new InputFeed(environment);
    this.#options = OrtRunOptions.create(environment, model.runEntries);
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    if (requests.length > 1 && !canMerge(this.#model.plan, requests)) {
      return await this.#executeEach(requests);
    }
    const result = await this.#run(requests);
    if ("error" in result) {
      const { error, inputEndMs, outputStartMs } = result;
      if (requests.length > 1 && error.code !== "CANCELLED") {
        this.#model.countBatchRetry();
        return await this.#executeEach(requests);
      }
      return { outcomes: requests.map(() => ({ error })), inputEndMs, outputStartMs };
    }
    return result;
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
    const feed = this.#feed;
    const times = { inputEndMs: 0, outputStartMs: 0 };
    try {
      const prepared = prepareRun(model, requests, { feed, arrays: this.#arrays });
      times.inputEndMs = times.outputStartMs = model.now();
      const aborts = watchAborts(requests, () => this.#options.terminate(), {
        passive: model.pace.mayBlock(prepared),
      });
      let result: RunResult;
      try {
        if (aborts.areAll()) throw cancelled();
        const running = runSession(model, prepared, this.#options);
        result = running instanceof Promise ? await running : running;
      } catch (error) {
        throw aborts.areAll() ? cancelled() : error;
      } finally {
        times.outputStartMs = model.now();
        if (aborts.end()) this.#options.rearm();
      }
      return { outcomes: shareOutputs(model.plan, result, requests), ...times };
    } catch (reason) {
      const now = model.now();
      return {
        error: ServerError.from(reason),
        inputEndMs: times.inputEndMs || now,
        outputStartMs: times.outputStartMs || now,
      };
    } finally {
      feed.release();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#feed[Symbol.dispose]();
    this.#options[Symbol.dispose]();
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
