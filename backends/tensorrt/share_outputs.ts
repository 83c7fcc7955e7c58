import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
import type { ExecuteOutcome, ExecuteRequest } from "../backend.ts";
import { checkOutputRows, splitRows } from "../batch.ts";
import type { CollectedOutput } from "./run.ts";
import type { OutputPlan, RunPlan, ScatterRule } from "./run_plan.ts";

/**
 * Gives each request its part of the outputs it asked for. The memory of a run is released with the last request.
 * @throws ServerError INTERNAL naming an output that does not hold enough for all; everything is released then.
 */
export function shareOutputs(
  plan: RunPlan,
  collected: readonly CollectedOutput[],
  requests: readonly ExecuteRequest[],
): ExecuteOutcome[] {
  const releases = collected.flatMap(({ release }) => release ?? []);
  let holders = requests.length;
  const releaseLast = () => {
    if (--holders === 0) { for (const release of releases) release(); }
  };
  try {
    const parts = collected.map((output) => partsOf(plan, output, requests));
    return requests.map((request, index) => {
      const own = parts.map((output) => output[index]!);
      const outputs = own.length === request.outputs.length
        ? own
        : own.filter(({ name }) => request.outputs.includes(name));
      return releases.length === 0 ? { outputs } : { outputs, release: once(releaseLast) };
    });
  } catch (error) {
    for (const release of releases) release();
    throw error;
  }
}

function once(action: () => void): () => void {
  let isDone = false;
  return () => {
    if (isDone) return;
    isDone = true;
    action();
  };
}

/** What the requests see of an output: what went to their memory, and parts of what came to this machine. */
function partsOf(
  plan: RunPlan,
  { tensor, placed }: CollectedOutput,
  requests: readonly ExecuteRequest[],
): Tensor[] {
  if (placed === undefined) return splitOutput(plan, tensor, requests);
  // Without bytes it is for those only who did not ask for it.
  const split = placed.needsHost ? splitOutput(plan, tensor, requests) : [];
  return placed.tensors.map((each, index) => each ?? split[index] ?? tensor);
}

function splitOutput(
  plan: RunPlan,
  output: Tensor,
  requests: readonly ExecuteRequest[],
): Tensor[] {
  const rule = plan.outputs.get(output.name)!;
  if (rule.scatter !== undefined) return scatter(output, rule.scatter, { rule, requests });
  if (!plan.isBatching) return requests.map(() => nameShape(output, rule));
  if (rule.tensor.isShapeTensor) {
    return requests.map(({ batchSize }) => withBatchSize(output, rule.elementSize, batchSize));
  }
  const rowCount = requests.reduce((rows, { batchSize }) => rows + batchSize, 0);
  checkOutputRows(output.name, output.shape, rowCount);
  if (requests.length === 1 && output.shape[0] === rowCount) return [output];
  return splitRows(output, requests.map(({ batchSize }) => batchSize));
}

/** A scalar of the model is shown as the configuration has it: with dimensions of size 1. */
function nameShape(output: Tensor, { scalarDims }: OutputPlan): Tensor {
  if (scalarDims === undefined || output.shape.length !== 0) return output;
  return { ...output, shape: scalarDims };
}

/** The first value of a shape tensor is the batch size: each request sees its own. */
function withBatchSize(output: Tensor, elementSize: number, batchSize: number): Tensor {
  const data = output.data.slice();
  const view = new DataView(data.buffer);
  if (data.byteLength >= elementSize) {
    if (elementSize === 8) view.setBigInt64(0, BigInt(batchSize), true);
    else view.setInt32(0, batchSize, true);
  }
  return { ...output, data };
}

/** Cuts the output one piece after the other, each as large as the configured shape with the source's sizes. */
function scatter(
  output: Tensor,
  { sourceInput, dims }: ScatterRule,
  { rule, requests }: {
    readonly rule: OutputPlan;
    readonly requests: readonly ExecuteRequest[];
  },
): Tensor[] {
  let offset = 0;
  return requests.map(({ inputs }) => {
    const source = inputs.find(({ name }) => name === sourceInput);
    const shape = dims.map((dim, index) => dim === -1 ? source?.shape[index] ?? 1 : dim);
    const end = offset + elementCount(shape, `output '${rule.name}'`) * rule.elementSize;
    if (end > output.data.byteLength) {
      throw new ServerError(
        "INTERNAL",
        `failed to split the output tensor '${rule.name}' in responses: expected at least ${end} ` +
          `bytes in model output, got ${output.data.byteLength}`,
      );
    }
    const data = output.data.subarray(offset, end);
    offset = end;
    return { ...output, shape, data };
  });
}
