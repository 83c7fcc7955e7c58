import assert from "node:assert/strict";
import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { buildModel, ONNX_DATA_TYPE } from "../fixtures/onnx_builder.ts";
import { doublingGraph } from "../fixtures/tensorflow_graph.ts";
import { identityIr, type IrTensor } from "../fixtures/openvino_ir.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { floats, openInstance, type OpenOptions, outputsOf, tensor } from "./fixture.ts";
import { frameworkLibrary } from "./framework_library.ts";

const library = frameworkLibrary("openvino");
const ignore = "reason" in library;

function open(xml: Uint8Array, options: OpenOptions = {}) {
  return openWith({ files: { "model.xml": xml }, ...options });
}

function openWith(options: OpenOptions) {
  const settings = { library: "path" in library ? library.path : "", ...options.settings };
  return openInstance("openvino", { ...options, settings });
}

const ROWS: IrTensor = { type: "f32", dims: [-1, 4] };

if ("reason" in library) {
  Deno.test({ name: `openvino: skipped, ${library.reason}`, ignore: true, fn() {} });
} else {
  runBackendSuite({
    name: "openvino",
    // No model fails for the values of one request: operators of OpenVINO check shapes when they are compiled.
    open: (config, instanceCount = 1) => open(identityIr([ROWS]), { config, instanceCount }),
  });
}

const IR_TYPE_OF: Partial<Record<Datatype, string>> = {
  BOOL: "boolean",
  UINT8: "u8",
  UINT16: "u16",
  UINT32: "u32",
  UINT64: "u64",
  INT8: "i8",
  INT16: "i16",
  INT32: "i32",
  INT64: "i64",
  FP16: "f16",
  FP32: "f32",
  FP64: "f64",
  BF16: "bf16",
};

function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `openvino: ${name}`, ignore, fn });
}

test("tensors of every datatype but strings pass, one by one and batched", async () => {
  const datatypes = Object.keys(IR_TYPE_OF) as Datatype[];
  await using opened = await open(
    identityIr(datatypes.map((each) => ({ type: IR_TYPE_OF[each]!, dims: [-1, 3] }))),
  );
  assert.equal(opened.source.config.maxBatchSize, 4);
  assert.equal(opened.source.config.schedulingChoice.case, "dynamicBatching");
  assert.deepEqual(
    opened.source.config.input.map(({ dataType }) => dataType),
    datatypes.map((each) => DATATYPES[each].config),
  );
  // On CPUs the library computes with 32 bits where the model has 64: these values survive that.
  const inputsFrom = (start: number) =>
    datatypes.map((datatype, k) => {
      const value = (i: number) => datatype === "BOOL" ? i & 1 : start + i;
      if (datatype === "UINT64" || datatype === "INT64") {
        const values = BigInt64Array.from({ length: 3 }, (_, i) => BigInt(1000 * value(i)));
        return tensor(`INPUT${k}`, datatype, [1, 3], new Uint8Array(values.buffer));
      }
      if (datatype === "FP64") {
        const values = Float64Array.from({ length: 3 }, (_, i) => value(i) + 0.5);
        return tensor(`INPUT${k}`, datatype, [1, 3], new Uint8Array(values.buffer));
      }
      const length = 3 * DATATYPES[datatype].byteSize;
      return tensor(`INPUT${k}`, datatype, [1, 3], Uint8Array.from({ length }, (_, i) => value(i)));
    });
  const requests = [inputsFrom(1), inputsFrom(50)].map((inputs) => opened.request(inputs));
  for (const batch of [requests.slice(0, 1), requests]) {
    const { outcomes } = await opened.instance.execute(batch);
    outcomes.forEach((outcome, index) => {
      outputsOf(outcome).forEach((output, k) => {
        assert.equal(output.datatype, datatypes[k]);
        assert.deepEqual([...output.shape], [1, 3]);
        assert.deepEqual([...output.data], [...batch[index]!.inputs[k]!.data], output.datatype);
      });
    });
  }
});

test("large inputs are read where they lie, and their sizes may change from run to run", async () => {
  await using opened = await open(identityIr([{ type: "f32", dims: [-1, -1] }], "Add"), {
    config: { maxBatchSize: 64 },
  });
  for (const [rows, columns] of [[3, 5], [40, 1000], [40, 1000], [64, 2000], [1, 1], [0, 7]]) {
    const values = Array.from({ length: rows! * columns! }, (_, index) => index % 251);
    const request = opened.request([tensor("INPUT0", "FP32", [rows!, columns!], values)]);
    const { outcomes } = await opened.instance.execute([request]);
    const [output] = outputsOf(outcomes[0]);
    assert.deepEqual([...output!.shape], [rows, columns]);
    assert.deepEqual(floats(output!), values.map((value) => 2 * value));
  }
});

test("scalars and fixed shapes do not batch", async () => {
  await using opened = await open(
    identityIr([{ type: "f32", dims: [] }, { type: "i32", dims: [2, 2] }], "Add"),
  );
  const { config } = opened.source;
  assert.equal(config.maxBatchSize, 0);
  assert.deepEqual(config.input.map(({ dims }) => dims), [[1n], [2n, 2n]]);
  const { outcomes } = await opened.instance.execute([
    opened.request([
      tensor("INPUT0", "FP32", [1], [1.5]),
      tensor("INPUT1", "INT32", [2, 2], [1, 2, 3, 4]),
    ]),
  ]);
  const [first, second] = outputsOf(outcomes[0]);
  assert.deepEqual([...first!.shape], [1]);
  assert.deepEqual(floats(first!), [3]);
  assert.deepEqual([...new Int32Array(second!.data.slice().buffer)], [2, 4, 6, 8]);
});

test("an ONNX model is read without a name in the configuration", async () => {
  const node = { op: "Mul", inputs: ["INPUT0", "INPUT0"], outputs: ["OUTPUT0"] };
  const value = (name: string) => ({ name, type: ONNX_DATA_TYPE.FLOAT, dims: ["n", 2] });
  const model = buildModel({
    nodes: [node],
    inputs: [value("INPUT0")],
    outputs: [value("OUTPUT0")],
  });
  await using opened = await openWith({ model });
  const request = opened.request([tensor("INPUT0", "FP32", [1, 2], [3, 4])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [9, 16]);
});

test("instances with streams of their own run at the same time", async () => {
  await using opened = await open(identityIr([ROWS], "Add"), {
    config: {
      instanceGroup: [{ count: 2 }],
      parameters: { INFERENCE_NUM_THREADS: { stringValue: "1" } },
    },
    instanceCount: 2,
  });
  const answers = await Promise.all(
    opened.instances.map((instance, start) =>
      instance.execute([opened.request([tensor("INPUT0", "FP32", [1, 4], [start, 1, 2, 3])])])
    ),
  );
  assert.deepEqual(answers.map(({ outcomes }) => floats(outputsOf(outcomes[0])[0]!)[0]), [0, 2]);
});

test("a request whose client has gone is not run", async () => {
  await using opened = await open(identityIr([ROWS]));
  const request = opened.request([tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])], {
    signal: AbortSignal.abort(),
  });
  const { outcomes } = await opened.instance.execute([request]);
  assert.match(Deno.inspect(outcomes[0]), /CANCELLED/);
});

const input = (dataType: DataType, dims: bigint[]) => [{ name: "INPUT0", dataType, dims }];
const output = (dataType: DataType, dims: bigint[]) => [{ name: "OUTPUT0", dataType, dims }];
const { TYPE_FP32, TYPE_INT32 } = DataType;

const REFUSED: Readonly<Record<string, readonly [OpenOptions, RegExp]>> = {
  "another type": [
    {
      config: { maxBatchSize: 4, input: input(TYPE_INT32, [4n]), output: output(TYPE_FP32, [4n]) },
    },
    /unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'INPUT0', model provides TYPE_FP32/,
  ],
  "other dims": [
    { config: { maxBatchSize: 4, input: input(TYPE_FP32, [5n]), output: output(TYPE_FP32, [4n]) } },
    /tensor 'INPUT0': the model expects 2 dimensions \(shape \[-1,4\]\)/,
  ],
  "an unknown output": [
    {
      config: {
        input: input(TYPE_FP32, [-1n, 4n]),
        output: [{ name: "NOT_THERE", dataType: TYPE_FP32, dims: [1n] }],
      },
    },
    /unexpected inference output 'NOT_THERE', allowed outputs are: OUTPUT0/,
  ],
  "a property the runtime does not know": [
    { config: { parameters: { NO_SUCH_PROPERTY: { stringValue: "1" } } } },
    /openvino error in compiling the model for CPU of 'm': .*NO_SUCH_PROPERTY/,
  ],
  "a device that is not there": [
    { config: { parameters: { TARGET_DEVICE: { stringValue: "TPU" } } } },
    /TARGET_DEVICE is 'TPU', devices of this machine: CPU/,
  ],
  "an instance on a GPU": [
    { placement: { kind: "KIND_GPU" } },
    /cannot have KIND_GPU: with backend 'openvino' the parameter TARGET_DEVICE chooses/,
  ],
  "no file": [
    { files: {} },
    /unable to find '.*\/1\/model\.xml' for model instance 'm'.*model\.bin/s,
  ],
  "a file under another name": [
    { files: { "mine.onnx": new Uint8Array(1) } },
    /set default_model_filename: "mine\.onnx"/,
  ],
  "a damaged graph": [
    { files: { "model.xml": new TextEncoder().encode("<net") } },
    /openvino error in reading the model of 'm': /,
  ],
  "an IR without its weights": [
    {
      files: {
        "model.xml": new TextEncoder().encode(
          `<net><layers><layer id="0" type="Const"/></layers></net>`,
        ),
      },
    },
    /unable to find '.*model\.bin' .*an OpenVINO IR is two files/,
  ],
};

for (const [what, [options, expected]] of Object.entries(REFUSED)) {
  test(`a load with ${what} fails with the place and the way out`, async () => {
    await assert.rejects(open(identityIr([ROWS]), options), (error: Error) => {
      assert.match(error.message, expected);
      return true;
    });
  });
}

Deno.test("openvino: a missing library is told with the package that brings it", async () => {
  await assert.rejects(
    openInstance("openvino", {
      files: { "model.xml": identityIr([ROWS]) },
      settings: { library: "/nowhere/libopenvino_c.so" },
    }),
    /Cannot open the OpenVINO library.*'\/nowhere\/libopenvino_c\.so'.*pip install openvino/s,
  );
});

function openGraph(graph: Uint8Array) {
  const settings = { library: "path" in library ? library.path : "" };
  return openInstance("tensorflow", { files: { "model.graphdef": graph }, settings });
}

test("a frozen graph of TensorFlow runs, and is completed", async () => {
  await using opened = await openGraph(doublingGraph());
  const { config } = opened.source;
  assert.deepEqual(config.input.map(({ name, dims }) => [name, dims]), [["x", [4n]]]);
  assert.deepEqual(config.output.map(({ name, dims }) => [name, dims]), [["y", [4n]]]);
  const request = opened.request([tensor("x", "FP32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 4, 6, 8, 10, 12, 14, 16]);
});

test("a graph with an operator that is not known is refused by its name", async () => {
  await assert.rejects(openGraph(doublingGraph("NoSuchOperator")), /NoSuchOperator/);
});
