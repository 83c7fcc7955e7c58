import { DataType, type ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import type { ConfigIssue } from "../../../proto/model_config.ts";
import { typoOf } from "../../../proto/model_config_hint.ts";
import {
  type DescribedTensor,
  formatDescribed,
  formatDims,
  type ModelDescription,
} from "./model_description.ts";

type Side = "input" | "output";
type Tensor = ModelConfig["input"][number] | ModelConfig["output"][number];
type FieldValue = { readonly path: string; readonly value: string };

const TENSOR_PATH = /^(input|output)\[(\d+)\]/;

/**
 * Says how the configuration must be for the model that is there: names, types and dims of the tensors it lists, and
 * inputs it leaves out. The model cannot be changed by a text, so this is the only mend of such faults.
 */
export function mendTensors(
  issues: readonly ConfigIssue[],
  config: ModelConfig,
  description: ModelDescription,
): ConfigIssue[] {
  const sides = {
    input: compareSide("input", config.input, description.inputs),
    output: compareSide("output", config.output, description.outputs),
  };
  return issues.map((issue) => {
    if (issue.mend !== undefined) return issue;
    if (issue.path === "input" && sides.input.added.length > 0) {
      const fields = sides.input.added;
      const hint = issue.hint ?? sides.input.hint;
      if (!isFedByServer(config)) return { ...issue, hint, mend: { fields } };
      return { ...issue, hint: `${hint}; as an input of clients, or as one that the server fills` };
    }
    const [, side, index] = TENSOR_PATH.exec(issue.path) ?? [];
    if (side === undefined) return issue;
    const { byIndex } = sides[side as Side];
    const fields = byIndex.get(Number(index)) ?? [];
    if (fields.length === 0) return issue;
    const hint = `the model has ${fields.map(({ value }) => value).join(", ")}`;
    return { ...issue, hint: issue.hint ?? hint, mend: { fields } };
  });
}

/** True when an input may be one that clients do not send: a control, a state, a generated count. */
function isFedByServer({ schedulingChoice, input }: ModelConfig): boolean {
  return schedulingChoice.case === "sequenceBatching" ||
    input.some(({ allowRaggedBatch }) => allowRaggedBatch);
}

interface SideMends {
  readonly byIndex: ReadonlyMap<number, readonly FieldValue[]>;
  /** Entries that are missing. */
  readonly added: readonly FieldValue[];
  readonly hint: string;
}

function compareSide(
  side: Side,
  tensors: readonly Tensor[],
  described: readonly DescribedTensor[],
): SideMends {
  const byName = new Map(described.map((tensor) => [tensor.name, tensor]));
  const unlisted = described.filter(({ name }) => !tensors.some((tensor) => tensor.name === name));
  const unknown = tensors.filter(({ name }) => !byName.has(name));
  const byIndex = new Map<number, FieldValue[]>();
  const renamed = new Set<string>();
  for (const [index, tensor] of tensors.entries()) {
    const path = `${side}[${index}]`;
    const real = byName.get(tensor.name) ?? meantTensor(tensor, unlisted, unknown.length);
    if (real === undefined) continue;
    const fields: FieldValue[] = [];
    if (real.name !== tensor.name) {
      renamed.add(real.name);
      fields.push({ path: `${path}.name`, value: JSON.stringify(real.name) });
    }
    if (real.dataType !== tensor.dataType && real.dataType !== DataType.TYPE_INVALID) {
      fields.push({ path: `${path}.data_type`, value: String(DataType[real.dataType]) });
    }
    if (tensor.reshape === undefined && !isFitting(side, tensor.dims, real.dims)) {
      fields.push({ path: `${path}.dims`, value: formatDims(mergedDims(tensor.dims, real.dims)) });
    }
    if (fields.length > 0) byIndex.set(index, fields);
  }
  const missing = unlisted.filter(({ name }) => !renamed.has(name));
  const isComplete = unknown.length === renamed.size;
  return {
    byIndex,
    added: isComplete
      ? missing.map((tensor, position) => ({
        path: `${side}[${tensors.length + position}]`,
        value: formatDescribed(tensor),
      }))
      : [],
    hint: `not listed: ${missing.map(({ name }) => name).join(", ")}`,
  };
}

/** The tensor behind a name that the model does not have: one with nearly the same name, or the only one left. */
function meantTensor(
  tensor: Tensor,
  unlisted: readonly DescribedTensor[],
  unknownCount: number,
): DescribedTensor | undefined {
  const typo = typoOf(tensor.name, unlisted.map(({ name }) => name));
  if (typo !== undefined) return unlisted.find(({ name }) => name === typo);
  const [only] = unlisted;
  if (only === undefined || unlisted.length > 1 || unknownCount > 1) return undefined;
  return only.dataType === tensor.dataType && isFitting("input", tensor.dims, only.dims)
    ? only
    : undefined;
}

function isFitting(side: Side, dims: readonly bigint[], real: readonly bigint[]): boolean {
  return dims.length === real.length &&
    dims.every((dim, index) => dim === real[index] || (side === "input" && real[index] === -1n));
}

/** The model's dims; where it leaves one free, that of the configuration may stay. */
function mergedDims(dims: readonly bigint[], real: readonly bigint[]): bigint[] {
  const isSameRank = dims.length === real.length;
  return real.map((dim, index) => {
    const own = dims[index];
    return isSameRank && dim === -1n && own !== undefined && own > 0n ? own : dim;
  });
}
