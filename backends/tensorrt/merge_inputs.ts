import { ServerError } from "../../proto/status.ts";
import { formatShape, type Tensor } from "../../proto/tensor.ts";
import type { ExecuteRequest } from "../backend.ts";
import { canJoinRows, joinedByteSize, joinedShape } from "../batch.ts";
import { createBatchInput } from "../batch_input.ts";
import { formatByteSize, type InputPlan, type RunPlan } from "./run_plan.ts";

/** One input of a run: the parts the requests bring, and their shape together. */
export interface MergedInput {
  readonly plan: InputPlan;
  readonly parts: readonly Tensor[];
  readonly shape: readonly number[];
  readonly byteSize: number;
}

/** True when one run can serve all the requests: same inputs, and shapes that differ in the first dimension only. */
export function canMerge(plan: RunPlan, requests: readonly ExecuteRequest[]): boolean {
  if (!plan.isBatching) return false;
  const first = requests[0]!.inputs;
  if (requests.some(({ inputs }) => inputs.length !== first.length)) return false;
  return first.every(({ name }, index) => {
    if (requests.some(({ inputs }) => inputs[index]!.name !== name)) return false;
    const input = plan.inputs.get(name);
    if (input?.isRagged) return true;
    const parts = requests.map(({ inputs }) => inputs[index]!);
    if (input?.tensor.isShapeTensor) return haveSameValues(parts, input.elementSize);
    return canJoinRows(parts);
  });
}

/** Behind the first value, which is the batch size. */
function haveSameValues(parts: readonly Tensor[], elementSize: number): boolean {
  const [first] = parts;
  return parts.every(({ data }) =>
    data.byteLength === first!.data.byteLength &&
    data.subarray(elementSize).every((byte, index) => byte === first!.data[elementSize + index])
  );
}

/**
 * Puts the inputs of the requests together.
 * @throws ServerError INVALID_ARG for an input that the model does not have, lacks, or that is not what its shape says.
 */
export function mergeInputs(plan: RunPlan, requests: readonly ExecuteRequest[]): MergedInput[] {
  const merged = requests[0]!.inputs.map((input, index) => {
    const parts = requests.length === 1 ? [input] : requests.map(({ inputs }) => inputs[index]!);
    return mergeInput(plan, input.name, parts);
  });
  for (const rule of plan.batchInputs) {
    const sources = requests.flatMap(({ inputs }) =>
      inputs.find(({ name }) => name === rule.sourceInput) ?? []
    );
    merged.push(mergeInput(plan, rule.targetName, [createBatchInput(rule, sources)]));
  }
  if (merged.length < plan.inputs.size) {
    const missing = [...plan.inputs.keys()]
      .filter((name) => !merged.some((input) => input.plan.name === name));
    throw new ServerError(
      "INVALID_ARG",
      `model '${plan.modelName}' cannot run without input '${missing.join("', '")}'`,
    );
  }
  return merged;
}

function mergeInput(plan: RunPlan, name: string, parts: readonly Tensor[]): MergedInput {
  const { modelName } = plan;
  const input = plan.inputs.get(name);
  if (input === undefined) {
    throw new ServerError("INVALID_ARG", `model '${modelName}' has no input '${name}'`);
  }
  for (const { datatype } of parts) {
    if (datatype === input.datatype) continue;
    throw new ServerError(
      "INVALID_ARG",
      `input '${name}' of model '${modelName}' is ${input.datatype}, got ${datatype}`,
    );
  }
  if (input.tensor.isShapeTensor) return mergeShapeTensor(plan, input, parts);
  const shape = joinShape(input, parts);
  const byteSize = joinedByteSize(parts);
  const expected = formatByteSize(input, shape);
  if (byteSize === expected) return { plan: input, parts, shape, byteSize };
  throw new ServerError(
    "INVALID_ARG",
    `input '${name}' of model '${modelName}' has ${byteSize} bytes, expected ${expected} for shape ` +
      `${formatShape(shape)} in the format of the engine`,
  );
}

function joinShape({ tensor, isRagged }: InputPlan, parts: readonly Tensor[]): readonly number[] {
  if (isRagged) {
    const counts = parts.map(({ shape }) => shape.reduce((product, dim) => product * dim, 1));
    return [counts.reduce((sum, count) => sum + count, 0)];
  }
  const shape = parts.length === 1 ? parts[0]!.shape : joinedShape(parts);
  return tensor.dims.length === 0 && shape.every((dim) => dim === 1) ? [] : shape;
}

/** The first value of a shape tensor is the batch size: those of the requests add up, the others are the same. */
function mergeShapeTensor(
  { isBatching, modelName }: RunPlan,
  plan: InputPlan,
  parts: readonly Tensor[],
): MergedInput {
  const [first] = parts;
  const { name, datatype } = first!;
  const count = first!.data.byteLength / plan.elementSize;
  const expected = plan.tensor.dims[0] ?? 1;
  if (expected !== -1 && count !== expected) {
    throw new ServerError(
      "INVALID_ARG",
      `shape tensor '${name}' of model '${modelName}' has ${count} values, expected ${expected}` +
        (isBatching ? ": the batch size, then those of the configuration" : ""),
    );
  }
  const shape = plan.tensor.dims.length === 0 ? [] : [count];
  const byteSize = first!.data.byteLength;
  if (parts.length === 1) return { plan, parts, shape, byteSize };
  const data = first!.data.slice();
  const view = new DataView(data.buffer);
  const sum = parts.reduce((rows, part) => rows + readInteger(part.data, plan.elementSize), 0n);
  if (plan.elementSize === 8) view.setBigInt64(0, sum, true);
  else view.setInt32(0, Number(sum), true);
  return { plan, parts: [{ name, datatype, shape, data }], shape, byteSize };
}

function readInteger(data: Uint8Array, size: number): bigint {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return size === 8 ? view.getBigInt64(0, true) : BigInt(view.getInt32(0, true));
}
