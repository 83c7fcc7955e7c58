import { ServerError } from "../../proto/status.ts";
import { byteSizeOf } from "../../proto/tensor.ts";
import type { CStringArray } from "../../ffi/memory.ts";
import type { ExecuteRequest } from "../backend.ts";
import { type MergedInput, mergeInputs, wantedOutputs } from "../onnx_merge_inputs.ts";
import type { InputFeed } from "./input_feed.ts";
import type { OnnxModel } from "./model.ts";
import type { PendingOutput, RunArrays } from "./native_run.ts";
import type { DimSource, OutputPlan } from "../onnx_run_plan.ts";

/** A run that can start: names, value addresses, and where the outputs go. */
export interface PreparedRun {
  readonly inputNames: CStringArray;
  readonly inputs: BigUint64Array<ArrayBuffer>;
  readonly outputNames: CStringArray;
  readonly outputs: BigUint64Array<ArrayBuffer>;
  readonly pending: PendingOutput[];
  /** The same names once more. */
  readonly names: { readonly inputs: readonly string[]; readonly outputs: readonly string[] };
  /** Whether a value lies on the device: then all are bound. */
  readonly isBound: boolean;
  /** Shapes of the inputs, in the order of their names. */
  readonly shapes: readonly (readonly number[])[];
  /** Bytes of all inputs. */
  readonly byteSize: number;
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
    for (const part of input.parts) byteSize += byteSizeOf(part);
    arrays.inputs[index] = feed.feed(input.plan, input.parts, input.shape);
  }
  const pending: PendingOutput[] = [];
  for (const name of names) {
    const output = plan.outputs.get(name);
    if (output === undefined) {
      throw new ServerError("INTERNAL", `model '${model.name}' has no output '${name}'`);
    }
    pending.push(chooseTarget(model, output, { inputs, requests, feed }));
  }
  pending.forEach(({ target, placed }, index) =>
    arrays.outputs[index] = target?.address ?? placed?.address ?? 0n
  );
  const inputNames = model.nameList(inputs);
  return {
    inputNames: model.inputNames.get(inputNames),
    inputs: arrays.inputs,
    outputNames: model.outputNames.get(names),
    outputs: arrays.outputs,
    pending,
    names: { inputs: inputNames, outputs: names },
    isBound: feed.usesDevice,
    shapes: inputs.map(({ shape }) => shape),
    byteSize,
  };
}

function chooseTarget(
  model: OnnxModel,
  output: OutputPlan,
  batch: {
    readonly inputs: readonly MergedInput[];
    readonly requests: readonly ExecuteRequest[];
    readonly feed: InputFeed;
  },
): PendingOutput {
  const pool = model.outputPool(output);
  const foreseen = pool && foreseeOutput(output, batch);
  if (foreseen === undefined) return { plan: output, target: undefined, placed: undefined };
  const { shape, byteSize } = foreseen;
  const wanted = batch.requests.length === 1
    ? batch.requests[0]!.targets?.get(output.name)
    : undefined;
  const placed = wanted && batch.feed.place(output, wanted, { shape, byteSize });
  if (placed !== undefined) return { plan: output, target: undefined, placed };
  const target = byteSize > MAX_TARGET_BYTE_SIZE ? undefined : pool!.take(byteSize, shape);
  return { plan: output, target, placed: undefined };
}

/** Shape and size of an output as the signature promises them; undefined when it does not. */
export function foreseeOutput(
  { dims, elementSize }: OutputPlan,
  batch: {
    readonly inputs: readonly MergedInput[];
    readonly requests: readonly ExecuteRequest[];
  },
): { readonly shape: readonly number[]; readonly byteSize: number } | undefined {
  if (dims === undefined) return undefined;
  const shape: number[] = [];
  let byteSize = elementSize;
  for (const source of dims) {
    const size = sizeOf(source, batch);
    if (size === undefined) return undefined;
    shape.push(size);
    byteSize *= size;
  }
  return { shape, byteSize };
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
