import type { Tensor } from "../../../proto/tensor.ts";
import type { InputRule, TensorRules } from "../tensor_rules.ts";
import type { Job } from "./job.ts";

/** True when two requests may share a batch. */
export type BatchComparison = (first: Job, other: Job) => boolean;

/**
 * Which requests of a model may share a batch (scheduling.md §2.5); undefined = all of them, because validation
 * already guarantees that they agree.
 */
export function createBatchComparison(rules: TensorRules): BatchComparison | undefined {
  const hasOptional = rules.inputs.some((rule) => rule.isOptional);
  const compared = rules.inputs.filter((rule) => rule.comparesShape);
  if (!hasOptional && compared.length === 0) return undefined;
  const leading = rules.maxBatchSize > 0 ? 1 : 0;
  return (first, other) => {
    if (hasOptional && !haveSameInputs(first, other)) return false;
    return compared.every((rule) => agrees(rule, leading, first, other));
  };
}

/** Inputs are in the order of the configuration, so equal sets are equal lists. */
function haveSameInputs(first: Job, other: Job): boolean {
  if (first.inputs.length !== other.inputs.length) return false;
  return first.inputs.every((input, index) => input.name === other.inputs[index]!.name);
}

function agrees(rule: InputRule, leading: number, first: Job, other: Job): boolean {
  const left = findInput(first, rule.name);
  const right = findInput(other, rule.name);
  if (left === undefined || right === undefined) return left === right;
  if (left.shape.length !== right.shape.length) return false;
  for (let index = rule.isShapeTensor ? 0 : leading; index < left.shape.length; index++) {
    if (left.shape[index] !== right.shape[index]) return false;
  }
  if (!rule.comparesContent) return true;
  // The first value of a shape tensor is the batch size, which adds up.
  const start = rule.isShapeTensor ? leading * rule.elementSize : 0;
  return haveSameContent(left.data.subarray(start), right.data.subarray(start));
}

function findInput(job: Job, name: string): Tensor | undefined {
  for (const input of job.inputs) {
    if (input.name === name) return input;
  }
  return undefined;
}

function haveSameContent(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}
