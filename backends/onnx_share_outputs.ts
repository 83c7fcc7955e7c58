import type { Tensor } from "../proto/tensor.ts";
import type { ExecuteOutcome, ExecuteRequest } from "./backend.ts";
import type { RunPlan } from "./onnx_run_plan.ts";
import { type CollectedOutput, splitOutput } from "./onnx_split_output.ts";

/**
 * Gives each request its part of the outputs it asked for. The memory of a run is released with the last request.
 * @throws ServerError INTERNAL naming an output that does not hold enough for all; everything is released then.
 */
export function shareOutputs(
  plan: RunPlan,
  result: readonly CollectedOutput[],
  requests: readonly ExecuteRequest[],
): ExecuteOutcome[] {
  const releases: (() => void)[] = [];
  for (const { release } of result) if (release !== undefined) releases.push(release);
  let parts: Tensor[][];
  try {
    const context = { run: plan, requests };
    parts = result.map(({ tensor }) =>
      splitOutput(tensor, plan.outputs.get(tensor.name)!, context)
    );
  } catch (error) {
    for (const release of releases) release();
    throw error;
  }
  if (requests.length === 1 && parts.length === requests[0]!.outputs.length) {
    const outputs = parts.map((output) => output[0]!);
    return [releases.length === 0 ? { outputs } : { outputs, release: releaseOnce(releases) }];
  }
  const shares = requests.map((request, index) => {
    const own = parts.map((output) => output[index]!);
    return own.length === request.outputs.length
      ? own
      : own.filter(({ name }) => request.outputs.includes(name));
  });
  return shareRelease(shares, releases.length === 0 ? undefined : releaseOnce(releases));
}

/** Outcomes of requests that share memory: `release` is called with the last of them. */
export function shareRelease(
  shares: readonly (readonly Tensor[])[],
  release: (() => void) | undefined,
): ExecuteOutcome[] {
  if (release === undefined) return shares.map((outputs) => ({ outputs }));
  let holders = shares.length;
  const releaseLast = () => {
    if (--holders === 0) release();
  };
  return shares.map((outputs) => ({ outputs, release: releaseOnce([releaseLast]) }));
}

function releaseOnce(releases: readonly (() => void)[]): () => void {
  let isReleased = false;
  return () => {
    if (isReleased) return;
    isReleased = true;
    for (const release of releases) release();
  };
}
