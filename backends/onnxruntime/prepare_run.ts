import { ServerError } from "../../proto/status.ts";
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
