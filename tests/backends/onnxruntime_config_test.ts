import assert from "node:assert/strict";
import { BatchInput_Kind, DataType } from "../../proto/gen/model_config_pb.ts";
import { isSteadyModelFile } from "../../backends/onnxruntime/steady_model.ts";
import {
  addModel,
  buildModel,
  identityModel,
  matmulChainModel,
  ONNX_DATA_TYPE as TYPE,
} from "../fixtures/onnx_builder.ts";
import { floats, openInstance, outputsOf, tensor } from "./fixture.ts";

const FP32 = DataType.TYPE_FP32;

/** OUTPUT = COUNT as a column; RAGGED is an input that is read, without effect on the result. */
function raggedModel(): Uint8Array {
  return buildModel({
    nodes: [
      { op: "ReduceSum", inputs: ["RAGGED"], outputs: ["sum"], attributes: { keepdims: 0 } },
      { op: "Mul", inputs: ["sum", "zero"], outputs: ["nothing"] },
      { op: "Reshape", inputs: ["COUNT", "column"], outputs: ["counts"] },
      { op: "Add", inputs: ["counts", "nothing"], outputs: ["OUTPUT"] },
    ],
    inputs: [
      { name: "RAGGED", type: TYPE.FLOAT, dims: ["elements"] },
      { name: "COUNT", type: TYPE.FLOAT, dims: ["requests"] },
    ],
    outputs: [{ name: "OUTPUT", type: TYPE.FLOAT, dims: ["requests", 1] }],
    initializers: [
      { name: "zero", type: TYPE.FLOAT, dims: [], raw: new Uint8Array(4) },
      {
        name: "column",
        type: TYPE.INT64,
        dims: [2],
        raw: new Uint8Array(BigInt64Array.of(-1n, 1n).buffer),
      },
    ],
  });
}

Deno.test("onnxruntime: ragged requests are joined and counted", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: raggedModel(),
    config: {
      maxBatchSize: 8,
      input: [{ name: "RAGGED", dataType: FP32, dims: [-1n], allowRaggedBatch: true }],
      output: [{ name: "OUTPUT", dataType: FP32, dims: [1n] }],
      batchInput: [{
        kind: BatchInput_Kind.BATCH_ELEMENT_COUNT,
        targetName: ["COUNT"],
        dataType: FP32,
        sourceInput: ["RAGGED"],
      }],
    },
  });
  const requests = [3, 5, 2].map((n) => opened.request([tensor("RAGGED", "FP32", [1, n])]));
  for (const batch of [requests, requests.slice(1, 2)]) {
    const { outcomes } = await opened.instance.execute(batch);
    const counts = outcomes.map((each) => floats(outputsOf(each)[0]!)[0]);
    assert.deepEqual(counts, batch.map(({ inputs }) => inputs[0]!.shape[1]));
  }
  assert.equal(opened.retryCount(), 0);
});

Deno.test("onnxruntime: an output is cut by the shapes of a ragged input", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([{ type: TYPE.FLOAT, dims: ["elements"] }]),
    config: {
      maxBatchSize: 8,
      input: [{ name: "INPUT0", dataType: FP32, dims: [-1n], allowRaggedBatch: true }],
      output: [{ name: "OUTPUT0", dataType: FP32, dims: [-1n] }],
      batchOutput: [{ targetName: ["OUTPUT0"], sourceInput: ["INPUT0"] }],
    },
  });
  const requests = [[1, 2, 3], [4], [5, 6]].map((values) =>
    opened.request([tensor("INPUT0", "FP32", [1, values.length], values)])
  );
  const { outcomes } = await opened.instance.execute(requests);
  const outputs = outcomes.map((each) => outputsOf(each)[0]!);
  assert.deepEqual(outputs.map(floats), [[1, 2, 3], [4], [5, 6]]);
  assert.deepEqual(outputs.map(({ shape }) => shape.join()), ["1,3", "1,1", "1,2"]);
});

Deno.test("onnxruntime: parameters of the session are obeyed", async () => {
  const parameters = Object.fromEntries(
    [
      ["intra_op_thread_count", "1"],
      ["execution_mode", "1"],
      ["enable_mem_arena", "0"],
      ["enable_mem_pattern", "0"],
      ["session.intra_op.allow_spinning", "0"],
    ].map(([key, stringValue]) => [key, { stringValue: stringValue! }]),
  );
  await using opened = await openInstance("onnxruntime", {
    model: addModel(["batch", 2]),
    config: { parameters },
  });
  const inputs = ["INPUT0", "INPUT1"].map((name) => tensor(name, "FP32", [1, 2], [1, 2]));
  const { outcomes } = await opened.instance.execute([opened.request(inputs)]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 4]);
});

Deno.test("onnxruntime: what is wrong with a model is told", async () => {
  const model = addModel(["batch", 2]);
  const input = (name: string) => ({ name, dataType: FP32, dims: [2n] });
  const output = [{ name: "OUTPUT0", dataType: FP32, dims: [2n] }];
  const refused = (config: Parameters<typeof openInstance>[1], expected: object) =>
    assert.rejects(openInstance("onnxruntime", config), expected);
  await refused({}, { code: "UNAVAILABLE", message: /unable to find '.*1\/model\.onnx'/ });
  await refused({ model: new TextEncoder().encode("no model") }, {
    code: "INTERNAL",
    message:
      /^onnx runtime error 7: Load model from .*1\/model\.onnx failed.*[^.]; the file of 8 bytes is/,
  });
  await refused({ model, config: { maxBatchSize: 2, input: [input("INPUT0")], output } }, {
    message: "unable to load model 'm', configuration expects 1 inputs, model provides 2 (input)",
  });
  const twice = [input("INPUT0"), input("INPUT0")];
  await refused({ model, config: { maxBatchSize: 2, input: twice, output } }, {
    message: /'INPUT0' more than once.*INPUT1/,
  });
  const other = [input("INPUT0"), { ...input("INPUT1"), dataType: DataType.TYPE_INT8 }];
  await refused({ model, config: { maxBatchSize: 2, input: other, output } }, {
    message: /expects datatype TYPE_INT8 for input 'INPUT1', model provides TYPE_FP32/,
  });
  await refused({ model, config: { defaultModelFilename: "../model.onnx" } }, {
    message: /default_model_filename '\.\.\/model\.onnx'/,
  });
});

Deno.test({
  name: "onnxruntime: a library of operators that is cut off is told, and not loaded",
  ignore: Deno.build.os !== "linux",
  async fn() {
    using whole = await Deno.open(Deno.execPath());
    const head = new Uint8Array(4096);
    await whole.read(head);
    const opening = openInstance("onnxruntime", {
      model: addModel(["batch", 2]),
      files: { "libcut.so": head },
      config: { modelOperations: { opLibraryFilename: ["1/libcut.so"] } },
    });
    await assert.rejects(opening, { message: /1\/libcut\.so': the file is cut off/ });
  },
});

Deno.test("onnxruntime: a library that cannot be opened is told with its path", async () => {
  await assert.rejects(
    openInstance("onnxruntime", {
      model: addModel(["batch", 2]),
      settings: { library: "/nowhere/libonnxruntime.so" },
    }),
    { code: "UNAVAILABLE", message: /--backend-config=onnxruntime,library: '\/nowhere/ },
  );
});

Deno.test("isSteadyModelFile() tells models whose work depends on values", async () => {
  const path = await Deno.makeTempFile({ prefix: "nereid_" });
  const isSteady = async (bytes: Uint8Array) => {
    await Deno.writeFile(path, bytes);
    return await isSteadyModelFile(path);
  };
  const type = TYPE.INT64;
  const range = buildModel({
    nodes: [{ op: "Range", inputs: ["A", "B", "C"], outputs: ["Y"] }],
    inputs: ["A", "B", "C"].map((name) => ({ name, type, dims: [] })),
    outputs: [{ name: "Y", type, dims: ["n"] }],
  });
  const shape = { name: "S", type, dims: [2] };
  const raw = new Uint8Array(new BigInt64Array([-1n, 1n]).buffer);
  const reshape = (source: "sent" | "fixed" | "read") =>
    buildModel({
      nodes: [
        ...(source === "read" ? [{ op: "Shape", inputs: ["A"], outputs: ["S"] }] : []),
        { op: "Reshape", inputs: ["A", "S"], outputs: ["Y"] },
      ],
      inputs: [
        { name: "A", type: TYPE.FLOAT, dims: ["n", "m"] },
        ...(source === "sent" ? [shape] : []),
      ],
      outputs: [{ name: "Y", type: TYPE.FLOAT, dims: [null, null] }],
      initializers: source === "fixed" ? [{ ...shape, raw }] : [],
    });
  assert.equal(await isSteady(reshape("fixed")), true);
  assert.equal(await isSteady(reshape("read")), true);
  assert.equal(await isSteady(reshape("sent")), false, "clients choose the shape");
  assert.equal(await isSteady(addModel(["batch", 2])), true);
  assert.equal(await isSteady(matmulChainModel(4, 500)), true);
  assert.equal(await isSteady(matmulChainModel(4, 600)), false);
  assert.equal(await isSteady(range), false);
  assert.equal(await isSteady(new TextEncoder().encode("no model at all")), false);
  assert.equal(await isSteady(new Uint8Array(0)), false);
  await Deno.remove(path);
});
