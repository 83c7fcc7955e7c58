import { ServerError } from "../../proto/status.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import type {
  ClientMemoryUse,
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import type { Machine } from "./machine.ts";
import { canMerge, mergeInputs } from "./merge_inputs.ts";
import { runBatch } from "./run.ts";
import { shareOutputs } from "./share_outputs.ts";

/** What an instance is made of. */
export interface InstanceParts {
  readonly placement: InstancePlacement;
  readonly machine: Machine;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
  /** Frees everything the instance holds. */
  readonly dispose: () => Promise<void>;
}

/** Execution contexts, a stream and memory on one GPU, in which batches run one after the other. */
export class TensorRtInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly memoryUse: ClientMemoryUse;
  readonly #parts: InstanceParts;
  #isDisposed = false;

  constructor(parts: InstanceParts) {
    this.placement = parts.placement;
    this.memoryUse = { host: false, cudaDeviceId: parts.machine.device.deviceId };
    this.#parts = parts;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { machine, countBatchRetry } = this.#parts;
    if (requests.length > 1 && !canMerge(machine.plan, requests)) {
      return await this.#executeEach(requests);
    }
    const result = await this.#run(requests);
    if (!("error" in result)) return result;
    const { error, inputEndMs, outputStartMs } = result;
    if (requests.length > 1 && error.code !== "CANCELLED") {
      countBatchRetry();
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
      const result = await this.#run([request]);
      inputEndMs ??= result.inputEndMs;
      outputStartMs = result.outputStartMs;
      if ("error" in result) outcomes.push({ error: result.error });
      else outcomes.push(...result.outcomes);
    }
    return { outcomes, inputEndMs: inputEndMs ?? this.#parts.now(), outputStartMs };
  }

  async #run(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | FailedRun> {
    const { machine, now } = this.#parts;
    let inputEndMs: number | undefined;
    try {
      if (requests.every(({ signal }) => signal?.aborted === true)) {
        throw new ServerError("CANCELLED", "Request cancelled while it was executed");
      }
      const inputs = mergeInputs(machine.plan, requests);
      const outputNames = wantedOutputs(requests);
      const rowCount = requests.reduce((rows, { batchSize }) => rows + batchSize, 0);
      inputEndMs = now();
      const collected = await runBatch(machine, { requests, inputs, outputNames, rowCount });
      const outputStartMs = now();
      const outcomes = shareOutputs(machine.plan, collected, requests);
      return { outcomes, inputEndMs, outputStartMs };
    } catch (reason) {
      const endMs = now();
      return { error: runError(reason), inputEndMs: inputEndMs ?? endMs, outputStartMs: endMs };
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    await this.#parts.dispose();
  }
}

interface FailedRun {
  readonly error: ServerError;
  readonly inputEndMs: number;
  readonly outputStartMs: number;
}

const OUT_OF_MEMORY = 2;

function runError(reason: unknown): ServerError {
  if (!(reason instanceof CudaError)) return ServerError.from(reason);
  const code = reason.status === OUT_OF_MEMORY ? "UNAVAILABLE" : "INTERNAL";
  return new ServerError(code, reason.message, { cause: reason });
}

function wantedOutputs(requests: readonly ExecuteRequest[]): readonly string[] {
  const first = requests[0]!.outputs;
  if (requests.every(({ outputs }) => outputs === first)) return first;
  return [...new Set(requests.flatMap(({ outputs }) => outputs))];
}
