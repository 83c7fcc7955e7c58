import { ServerError } from "../../proto/status.ts";
import { OrtRunOptions } from "../../ffi/onnxruntime/mod.ts";
import type {
  ClientMemoryUse,
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { watchAborts } from "../abort_watch.ts";
import { GpuBatch } from "./gpu_batch.ts";
import { InputFeed } from "./input_feed.ts";
import type { OnnxModel } from "./model.ts";
import { RunArrays } from "./native_run.ts";
import {
  type BatchRunner,
  cancelledWhileExecuted,
  executeBatch,
  type FailedRun,
} from "../onnx_execute_batch.ts";
import { prepareRun } from "./prepare_run.ts";
import { type RunResult, runSession } from "./run_session.ts";
import { usesDevice } from "./session_memory.ts";
import { shareOutputs, shareRelease } from "../onnx_share_outputs.ts";

type RunOutcome = Extract<ExecuteOutcome, { readonly outputs: unknown }>;

/** One place in which batches of a model run; all instances of a model share its session. */
export class OnnxInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly memoryUse: ClientMemoryUse;
  readonly #model: OnnxModel;
  readonly #feed: InputFeed;
  readonly #options: OrtRunOptions;
  readonly #arrays = new RunArrays();
  readonly #runner: BatchRunner;
  readonly #gpuBatch: GpuBatch | undefined;

  constructor(model: OnnxModel, placement: InstancePlacement) {
    this.#model = model;
    this.placement = placement;
    const { environment } = model.session;
    const { memory } = model;
    this.memoryUse = { host: true, cudaDeviceId: memory?.deviceId };
    this.#feed = new InputFeed(environment, memory);
    this.#options = OrtRunOptions.create(environment, model.runEntries);
    if (memory?.copies !== undefined) this.#gpuBatch = new GpuBatch(model, memory.copies);
    const { plan, now, countBatchRetry } = model;
    this.#runner = {
      plan,
      now,
      countBatchRetry,
      // What lies on the GPU is joined there, or not at all.
      mayMerge: (requests) => !requests.some((request) => usesDevice(memory, request)),
      run: (requests) => this.#run(requests),
    };
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const batch = this.#gpuBatch;
    return batch?.canJoin(requests)
      ? this.#executeJoined(batch, requests)
      : executeBatch(this.#runner, requests);
  }

  /** Runs requests on the GPU as one, and when that fails as if they could not be joined there. Never rejects. */
  async #executeJoined(
    batch: GpuBatch,
    requests: readonly ExecuteRequest[],
  ): Promise<ExecuteReport> {
    try {
      const report = await this.#run([await batch.join(requests)], requests);
      if ("error" in report) throw report.error;
      const { outputs, release } = report.outcomes[0] as RunOutcome;
      const shares = await batch.share(outputs, requests).catch((reason) => {
        release?.();
        throw reason;
      });
      return { ...report, outcomes: shareRelease(shares, release) };
    } catch (reason) {
      const isRetry = requests.length > 1 && ServerError.from(reason).code !== "CANCELLED";
      if (isRetry) this.#model.countBatchRetry();
      return await executeBatch(this.#runner, requests);
    }
  }

  /** @param waiting whose clients wait for it: without them it may be stopped. */
  async #run(
    requests: readonly ExecuteRequest[],
    waiting: readonly ExecuteRequest[] = requests,
  ): Promise<ExecuteReport | FailedRun> {
    const model = this.#model;
    const feed = this.#feed;
    const times = { inputEndMs: 0, outputStartMs: 0 };
    try {
      const prepared = prepareRun(model, requests, { feed, arrays: this.#arrays });
      times.inputEndMs = times.outputStartMs = model.now();
      const aborts = watchAborts(waiting, () => this.#options.terminate(), {
        passive: model.pace.mayBlock(prepared),
      });
      let result: RunResult;
      try {
        if (aborts.areAll()) throw cancelledWhileExecuted();
        const running = runSession(model, prepared, this.#options);
        result = running instanceof Promise ? await running : running;
      } catch (error) {
        throw aborts.areAll() ? cancelledWhileExecuted() : error;
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

  async [Symbol.asyncDispose](): Promise<void> {
    this.#feed[Symbol.dispose]();
    this.#options[Symbol.dispose]();
    await this.#gpuBatch?.[Symbol.asyncDispose]();
  }
}
