import { dirname, join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import { buildModel, ONNX_DATA_TYPE } from "../fixtures/onnx_builder.ts";
import { measure, type MeasureOptions, type Target } from "./measure.ts";
import { rampValues, type RequestParts } from "./payload.ts";
import { formatCell, print } from "./report.ts";

/** Sequences that live at the same time, each with one request in flight. */
const SEQUENCE_COUNT = 100;

const PROJECT = join(import.meta.dirname!, "..", "..");
const SILERO = "examples/model_repository/silero_vad_stream/1/model.onnx";
/** Floats of the state of the small model: as many as Silero VAD has. */
const STATE_SIZE = 256;
const INVOKE = "/inference.GRPCInferenceService/ModelInfer";

/** A model served twice: as a sequence model, and with its state among inputs and outputs. */
interface Pair {
  readonly title: string;
  readonly sequence: string;
  readonly plain: string;
  readonly inputs: readonly BenchTensor[];
  /** What a client of the plain model sends besides. */
  readonly state: BenchTensor;
}

interface BenchTensor {
  readonly name: string;
  readonly datatype: "FP32" | "INT64";
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

function floats(name: string, shape: readonly number[]): BenchTensor {
  return { name, datatype: "FP32", shape, data: new Uint8Array(rampValues(shape).buffer) };
}

const SUM: Pair = {
  title: `running sum, FP32[${STATE_SIZE}], batches of 32`,
  sequence: "sum_sequence",
  plain: "sum_plain",
  inputs: [floats("IN", [1, STATE_SIZE])],
  state: floats("LAST", [1, STATE_SIZE]),
};
const VAD: Pair = {
  title: "Silero VAD",
  sequence: "vad_sequence",
  plain: "vad_plain",
  inputs: [floats("input", [1, 576]), {
    name: "sr",
    datatype: "INT64",
    shape: [1],
    data: new Uint8Array(BigInt64Array.of(16_000n).buffer),
  }],
  state: floats("state", [2, 1, 128]),
};

/** Adds the models to a repository; returns the pairs it serves (the real one only where the demo has fetched it). */
export async function writeSequenceModels(repository: string): Promise<Pair[]> {
  const tensor = (name: string) => ({
    name,
    type: ONNX_DATA_TYPE.FLOAT,
    dims: ["batch", STATE_SIZE],
  });
  const sum = buildModel({
    nodes: [
      { op: "Add", inputs: ["IN", "LAST"], outputs: ["NEXT"] },
      { op: "Identity", inputs: ["NEXT"], outputs: ["OUT"] },
    ],
    inputs: [tensor("IN"), tensor("LAST")],
    outputs: [tensor("OUT"), tensor("NEXT")],
  });
  const row = (name: string) => `{ name: "${name}" data_type: TYPE_FP32 dims: ${STATE_SIZE} }`;
  const state = `state { input_name: "LAST" output_name: "NEXT" data_type: TYPE_FP32
    dims: ${STATE_SIZE} }`;
  await write(repository, SUM.sequence, sum, {
    tensors: `max_batch_size: 32 input ${row("IN")} output ${row("OUT")}`,
    scheduling: sequenceBatching(state),
  });
  await write(repository, SUM.plain, sum, {
    tensors: `max_batch_size: 32 input [ ${row("IN")}, ${row("LAST")} ]
      output [ ${row("OUT")}, ${row("NEXT")} ]`,
    scheduling: "dynamic_batching { }",
  });
  const vad = await Deno.readFile(join(PROJECT, SILERO)).catch(() => undefined);
  if (vad === undefined) return [SUM];
  const input = `input [ { name: "input" data_type: TYPE_FP32 dims: [ 1, 576 ] },
    { name: "sr" data_type: TYPE_INT64 dims: 1 } ]`;
  const output = `output { name: "output" data_type: TYPE_FP32 dims: [ -1, 1 ] }`;
  await write(repository, VAD.sequence, vad, {
    tensors: input + output,
    scheduling: sequenceBatching(`state { input_name: "state" output_name: "stateN"
      data_type: TYPE_FP32 dims: [ 2, 1, 128 ] }`),
  });
  await write(repository, VAD.plain, vad, {
    tensors: `${input} ${output}
      input { name: "state" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] }
      output { name: "stateN" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }`,
    scheduling: "",
  });
  return [SUM, VAD];
}

function sequenceBatching(state: string): string {
  return `sequence_batching { max_sequence_idle_microseconds: 60000000
    oldest { max_candidate_sequences: ${SEQUENCE_COUNT} } ${state} }`;
}

async function write(
  repository: string,
  name: string,
  model: Uint8Array,
  { tensors, scheduling }: { readonly tensors: string; readonly scheduling: string },
): Promise<void> {
  const file = join(repository, name, "1", "model.onnx");
  await Deno.mkdir(dirname(file), { recursive: true });
  await Deno.writeFile(file, model);
  const config = `backend: "onnxruntime" ${tensors} ${scheduling}
    instance_group { kind: KIND_CPU count: 1 }
    parameters { key: "intra_op_thread_count" value { string_value: "1" } }`;
  await Deno.writeTextFile(join(repository, name, "config.pbtxt"), config);
}

/** Steps per second of sequences that all go on at once, against the same model without sequences. */
export async function compareSequences(
  ours: Target,
  pairs: readonly Pair[],
  { directory, options }: { readonly directory: string; readonly options: MeasureOptions },
): Promise<void> {
  for (const { title, sequence, plain, inputs, state } of pairs) {
    const without = await writeRequest(directory, plain, [...inputs, state]);
    const plainCell = await measure(ours, without, SEQUENCE_COUNT, options);
    print(formatCell(`ours  ${plain} grpc ${SEQUENCE_COUNT}`, plainCell, []));
    const steps = await writeRequest(directory, sequence, inputs);
    const cell = await measure(ours, { ...steps, isSequence: true }, SEQUENCE_COUNT, options);
    const ratio = cell.perSecond / plainCell.perSecond;
    print(
      formatCell(`ours  ${sequence} grpc ${SEQUENCE_COUNT}`, cell, [
        [`x rate without sequences (${title})`, ratio],
        ["x CPU", cell.cpuUs / plainCell.cpuUs],
      ]),
    );
  }
}

async function writeRequest(
  directory: string,
  modelName: string,
  tensors: readonly BenchTensor[],
): Promise<RequestParts> {
  const bodyFile = join(directory, `${modelName}.bin`);
  const message = create(ModelInferRequestSchema, {
    modelName,
    inputs: tensors.map(({ name, datatype, shape }) => ({
      name,
      datatype,
      shape: shape.map(BigInt),
    })),
    rawInputContents: tensors.map(({ data }) => data),
  });
  await Deno.writeFile(bodyFile, toBinary(ModelInferRequestSchema, message));
  return { way: "grpc", path: INVOKE, headers: [], bodyFile };
}
