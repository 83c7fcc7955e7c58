import { ServerError } from "../proto/status.ts";
import { elementCount, type Tensor, withShape } from "../proto/tensor.ts";
import type { ExecuteRequest } from "./backend.ts";
import { checkOutputRows, skipStrings, splitRows } from "./batch.ts";
import type { OutputPlan, RunPlan } from "./onnx_run_plan.ts";

/** A whole output of a run, and what to do when its bytes are not needed any more. */
export interface CollectedOutput {
  readonly tensor: Tensor;
  readonly release: (() => void) | undefined;
}

/**
 * Cuts a whole output into the parts of the requests.
 * @throws ServerError INTERNAL naming the output when it does not hold as much as the requests need.
 */
export function splitOutput(
  output: Tensor,
  plan: OutputPlan,
  context: { readonly run: RunPlan; readonly requests: readonly ExecuteRequest[] },
): Tensor[] {
  const { run, requests } = context;
  if (plan.scatter !== undefined) return scatterOutput(output, plan, requests);
  if (!run.isBatching) return [nameShape(output, plan)];
  const rowCount = requests.reduce((rows, { batchSize }) => rows + batchSize, 0);
  checkOutputRows(output.name, output.shape, rowCount);
  if (requests.length === 1 && output.shape[0] === rowCount) return [output];
  return splitRows(output, requests.map(({ batchSize }) => batchSize));
}

/** A scalar of the model is shown as the configuration has it: with dimensions of size 1. */
function nameShape(output: Tensor, plan: OutputPlan): Tensor {
  if (plan.scalarDims === undefined || output.shape.length !== 0) return output;
  return withShape(output, plan.scalarDims);
}

/** Cuts the output one piece after the other, each as large as the configured shape with the source's sizes. */
function scatterOutput(
  output: Tensor,
  plan: OutputPlan,
  requests: readonly ExecuteRequest[],
): Tensor[] {
  const { sourceInput, dims } = plan.scatter!;
  const shapes = requests.map(({ inputs }) => {
    const source = inputs.find(({ name }) => name === sourceInput);
    return dims.map((dim, index) => dim === -1 ? source?.shape[index] ?? 1 : dim);
  });
  const counts = shapes.map((shape) => elementCount(shape, `output '${plan.name}'`));
  const needed = counts.reduce((sum, count) => sum + count, 0);
  const present = elementCount(output.shape);
  if (needed > present) {
    throw new ServerError(
      "INTERNAL",
      `failed to split the output tensor '${plan.name}' in responses: expected at least ${needed} ` +
        `elements in model output, got ${present}`,
    );
  }
  const offsets = plan.elementSize === 0 ? skipStrings(output.data, counts) : [0];
  if (plan.elementSize > 0) {
    let offset = 0;
    for (const count of counts) offsets.push(offset += count * plan.elementSize);
  }
  return shapes.map((shape, index) => ({
    name: output.name,
    datatype: output.datatype,
    shape,
    data: output.data.subarray(offsets[index], offsets[index + 1]),
  }));
}
