import { ServerError } from "../proto/status.ts";
import type { ExecuteOutcome, ExecuteReport, ExecuteRequest } from "./backend.ts";
import { canMerge } from "./onnx_merge_inputs.ts";
import type { RunPlan } from "./onnx_run_plan.ts";

/** A run that failed as a whole. */
export interface FailedRun {
  readonly error: ServerError;
  readonly inputEndMs: number;
  readonly outputStartMs: number;
}

/** What runs requests of a model together. */
export interface BatchRunner {
  readonly plan: RunPlan;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
  /** Whether the requests may run together, beside what their shapes say; absent = always. */
  readonly mayMerge?: (requests: readonly ExecuteRequest[]) => boolean;
  /** One run for all the requests; never rejects. */
  readonly run: (requests: readonly ExecuteRequest[]) => Promise<ExecuteReport | FailedRun>;
}

/** Runs a batch: together when the shapes allow it, and one by one when that fails. Never rejects. */
export async function executeBatch(
  runner: BatchRunner,
  requests: readonly ExecuteRequest[],
): Promise<ExecuteReport> {
  if (requests.length > 1) {
    const isMerged = canMerge(runner.plan, requests) && runner.mayMerge?.(requests) !== false;
    if (!isMerged) return await executeEach(runner, requests);
  }
  const result = await runner.run(requests);
  if (!("error" in result)) return result;
  const { error, inputEndMs, outputStartMs } = result;
  if (requests.length > 1 && error.code !== "CANCELLED") {
    runner.countBatchRetry();
    return await executeEach(runner, requests);
  }
  return { outcomes: requests.map(() => ({ error })), inputEndMs, outputStartMs };
}

/** Runs the requests one after the other, so that a failure stays with the request that causes it. */
async function executeEach(
  runner: BatchRunner,
  requests: readonly ExecuteRequest[],
): Promise<ExecuteReport> {
  const outcomes: ExecuteOutcome[] = [];
  let inputEndMs: number | undefined;
  let outputStartMs = 0;
  for (const request of requests) {
    if (request.signal?.aborted) {
      outcomes.push({ error: cancelledWhileExecuted() });
      continue;
    }
    const result = await runner.run([request]);
    inputEndMs ??= result.inputEndMs;
    outputStartMs = result.outputStartMs;
    if ("error" in result) outcomes.push({ error: result.error });
    else outcomes.push(...result.outcomes);
  }
  const now = runner.now();
  return { outcomes, inputEndMs: inputEndMs ?? now, outputStartMs: outputStartMs || now };
}

/** The answer to requests whose clients have gone. */
export function cancelledWhileExecuted(): ServerError {
  return new ServerError("CANCELLED", "Request cancelled while it was executed");
}
