import { ServerError } from "../proto/status.ts";
import type { Tensor } from "../proto/tensor.ts";
import type { ExecuteRequest } from "./backend.ts";
import { canJoinRows, joinedShape } from "./batch.ts";
import { createBatchInput } from "./batch_input.ts";
import type { InputPlan, RunPlan } from "./onnx_run_plan.ts";

/** The model whose inputs are merged. */
export interface MergeTarget {
  readonly name: string;
  readonly plan: RunPlan;
  /** Inputs the model cannot do without. */
  readonly requiredInputCount: number;
}

/** True when one run can serve all the requests: same inputs, and shapes that differ in the first dimension only. */
export function canMerge(plan: RunPlan, requests: readonly ExecuteRequest[]): boolean {
  if (!plan.isBatching) return false;
  const first = requests[0]!.inputs;
  if (requests.some(({ inputs }) => inputs.length !== first.length)) return false;
  return first.every(({ name }, index) => {
    if (requests.some(({ inputs }) => inputs[index]!.name !== name)) return false;
    if (plan.inputs.get(name)?.isRagged) return true;
    return canJoinRows(requests.map(({ inputs }) => inputs[index]!));
  });
}

/** One input of a run: the parts the requests bring, and their shape together. */
export interface MergedInput {
  readonly plan: InputPlan;
  readonly parts: readonly Tensor[];
  readonly shape: readonly number[];
}

/** Names of the outputs that a run of all the requests must compute. */
export function wantedOutputs(requests: readonly ExecuteRequest[]): readonly string[] {
  const first = requests[0]!.outputs;
  if (requests.every(({ outputs }) => outputs === first)) return first;
  return [...new Set(requests.flatMap(({ outputs }) => outputs))];
}

/**
 * Joins the inputs of the requests and makes those that are generated.
 * @throws ServerError INVALID_ARG naming an input that the model has not, or cannot do without.
 */
export function mergeInputs(
  model: MergeTarget,
  requests: readonly ExecuteRequest[],
): MergedInput[] {
  const { plan } = model;
  const merged: MergedInput[] = requests[0]!.inputs.map((input, index) => {
    const parts = requests.length === 1 ? [input] : requests.map(({ inputs }) => inputs[index]!);
    return mergeInput(model, input.name, parts);
  });
  for (const rule of plan.batchInputs) {
    const sources = requests.flatMap(({ inputs }) =>
      inputs.find(({ name }) => name === rule.sourceInput) ?? []
    );
    merged.push(mergeInput(model, rule.targetName, [createBatchInput(rule, sources)]));
  }
  if (merged.length < model.requiredInputCount) throw missingInput(model, merged);
  return merged;
}

function mergeInput(model: MergeTarget, name: string, parts: readonly Tensor[]): MergedInput {
  const plan = model.plan.inputs.get(name);
  if (plan === undefined) {
    throw new ServerError("INVALID_ARG", `model '${model.name}' has no input '${name}'`);
  }
  for (const { datatype } of parts) {
    if (datatype === plan.datatype) continue;
    throw new ServerError(
      "INVALID_ARG",
      `input '${name}' of model '${model.name}' is ${plan.datatype}, got ${datatype}`,
    );
  }
  if (plan.isRagged) {
    const counts = parts.map(({ shape }) => shape.reduce((product, dim) => product * dim, 1));
    return { plan, parts, shape: [counts.reduce((sum, count) => sum + count, 0)] };
  }
  const shape = parts.length === 1 ? parts[0]!.shape : joinedShape(parts);
  const isScalar = plan.rank === 0 && shape.every((dim) => dim === 1);
  return { plan, parts, shape: isScalar ? [] : shape };
}

/** An input may be optional for the configuration and yet be one the model cannot do without. */
function missingInput(model: MergeTarget, merged: readonly MergedInput[]): ServerError {
  const given = new Set(merged.map(({ plan }) => plan.name));
  const missing = [...model.plan.inputs.values()]
    .filter(({ name, isRequired }) => isRequired && !given.has(name))
    .map(({ name }) => `'${name}'`);
  return new ServerError(
    "INVALID_ARG",
    `model '${model.name}' cannot run without input ${missing.join(", ")}`,
  );
}
