import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { CStringArray } from "../../ffi/memory.ts";
import type { ExecuteRequest } from "../backend.ts";
import { canJoinRows, joinedShape } from "../batch.ts";
import { createBatchInput } from "../batch_input.ts";
import type { InputFeed } from "./input_feed.ts";
import type { OnnxModel } from "./model.ts";
import type { PendingOutput, RunArrays } from "./native_run.ts";
import type { DimSource, InputPlan, OutputPlan, RunPlan } from "./run_plan.ts";

/** A run that can start: names, value addresses, and where the outputs go. */
export interface PreparedRun {
  readonly inputNames: CStringArray;
  readonly inputs: BigUint64Array<ArrayBuffer>;
  readonly outputNames: CStringArray;
  readonly outputs: BigUint64Array<ArrayBuffer>;
  readonly pending: PendingOutput[];
  /** Shapes of the inputs, in the order of their names. */
  readonly shapes: readonly (readonly number[])[];
  /** Bytes of all inputs. */
  readonly byteSize: number;
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

/**
 * Puts the inputs of the requests in place and chooses targets for the outputs.
 * @throws ServerError or OrtError; then nothing is held but by `feed`.
 */
export function prepareRun(
  model: OnnxModel,
  requests: readonly ExecuteRequest[],
  { feed, arrays }: { readonly feed: InputFeed; readonly arrays: RunArrays },
): PreparedRun {
  const { plan } = model;
  const names = wantedOutputs(requests);
  const inputs = mergeInputs(model, requests);
  arrays.reserve(inputs.length, names.length);
  let byteSize = 0;
  for (let index = 0; index < inputs.length; index++) {
    const input = inputs[index]!;
    for (const { data } of input.parts) byteSize += data.byteLength;
    arrays.inputs[index] = feed.feed(input.plan, input.parts, input.shape);
  }
  const pending: PendingOutput[] = [];
  for (const name of names) {
    const output = plan.outputs.get(name);
    if (output === undefined) {
      throw new ServerError("INTERNAL", `model '${model.name}' has no output '${name}'`);
    }
    pending.push({ plan: output, target: chooseTarget(model, output, { inputs, requests }) });
  }
  pending.forEach(({ target }, index) => arrays.outputs[index] = target?.address ?? 0n);
  return {
    inputNames: model.inputNames.get(model.nameList(inputs)),
    inputs: arrays.inputs,
    outputNames: model.outputNames.get(names),
    outputs: arrays.outputs,
    pending,
    shapes: inputs.map(({ shape }) => shape),
    byteSize,
  };
}

/** One input of a run: the parts the requests bring, and their shape together. */
export interface MergedInput {
  readonly plan: InputPlan;
  readonly parts: readonly Tensor[];
  readonly shape: readonly number[];
}

function wantedOutputs(requests: readonly ExecuteRequest[]): readonly string[] {
  const first = requests[0]!.outputs;
  if (requests.every(({ outputs }) => outputs === first)) return first;
  return [...new Set(requests.flatMap(({ outputs }) => outputs))];
}

function mergeInputs(model: OnnxModel, requests: readonly ExecuteRequest[]): MergedInput[] {
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

function mergeInput(model: OnnxModel, name: string, parts: readonly Tensor[]): MergedInput {
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
function missingInput(model: OnnxModel, merged: readonly MergedInput[]): ServerError {
  const given = new Set(merged.map(({ plan }) => plan.name));
  const missing = [...model.plan.inputs.values()]
    .filter(({ name, isRequired }) => isRequired && !given.has(name))
    .map(({ name }) => `'${name}'`);
  return new ServerError(
    "INVALID_ARG",
    `model '${model.name}' cannot run without input ${missing.join(", ")}`,
  );
}

function chooseTarget(
  model: OnnxModel,
  output: OutputPlan,
  batch: {
    readonly inputs: readonly MergedInput[];
    readonly requests: readonly ExecuteRequest[];
  },
) {
  const pool = model.outputPool(output);
  if (pool === undefined || output.dims === undefined) return undefined;
  const shape: number[] = [];
  let byteSize = output.elementSize;
  for (const source of output.dims) {
    const size = sizeOf(source, batch);
    if (size === undefined) return undefined;
    shape.push(size);
    byteSize *= size;
  }
  return byteSize > MAX_TARGET_BYTE_SIZE ? undefined : pool.take(byteSize, shape);
}

/** What is larger is allocated by the runtime, once it knows that it really needs it. */
const MAX_TARGET_BYTE_SIZE = 256 * 1024 * 1024;

function sizeOf(
  source: DimSource,
  { inputs, requests }: {
    readonly inputs: readonly MergedInput[];
    readonly requests: readonly ExecuteRequest[];
  },
): number | undefined {
  if (typeof source === "number") return source;
  if (source === "rows") {
    return requests.reduce((rows, { batchSize }) => rows + batchSize, 0);
  }
  return inputs.find(({ plan }) => plan.name === source.input)?.shape[source.dim];
}
