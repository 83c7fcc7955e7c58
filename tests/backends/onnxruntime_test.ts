import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import {
  addModel,
  buildModel,
  identityModel,
  lookupModel,
  matmulChainModel,
  ONNX_DATA_TYPE as TYPE,
} from "../fixtures/onnx_builder.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { bytesData, floats, openInstance, outputsOf, tensor } from "./fixture.ts";
import { type Datatype, DATATYPES } from "../../proto/datatype.ts";

runBackendSuite({
  name: "onnxruntime",
  open: (config, instanceCount = 1) =>
    openInstance("onnxruntime", {
      model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]),
      config,
      instanceCount,
    }),
  async failing() {
    const opened = await openInstance("onnxruntime", { model: lookupModel() });
    return { ...opened, failing: 1, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});

const ONNX_TYPE_OF: Record<Datatype, number> = {
  BOOL: TYPE.BOOL,
  UINT8: TYPE.UINT8,
  UINT16: TYPE.UINT16,
  UINT32: TYPE.UINT32,
  UINT64: TYPE.UINT64,
  INT8: TYPE.INT8,
  INT16: TYPE.INT16,
  INT32: TYPE.INT32,
  INT64: TYPE.INT64,
  FP16: TYPE.FLOAT16,
  FP32: TYPE.FLOAT,
  FP64: TYPE.DOUBLE,
  BYTES: TYPE.STRING,
  BF16: TYPE.BFLOAT16,
};

Deno.test("onnxruntime: tensors of every datatype pass, one by one and batched", async () => {
  const datatypes = Object.keys(DATATYPES) as Datatype[];
  await using opened = await openInstance("onnxruntime", {
    model: identityModel(
      datatypes.map((each) => ({ type: ONNX_TYPE_OF[each], dims: ["batch", 3] })),
    ),
  });
  assert.deepEqual(
    opened.source.config.input.map(({ dataType }) => dataType),
    datatypes.map((each) => DATATYPES[each].config),
  );
  const inputsFrom = (start: number) =>
    datatypes.map((datatype, k) => {
      const values = datatype === "BYTES"
        ? bytesData([`text ${start}`, "", new Uint8Array([0, 65, 0, 255, 0])])
        : Uint8Array.from(
          { length: 3 * DATATYPES[datatype].byteSize },
          (_, i) => datatype === "BOOL" ? i & 1 : start + i,
        );
      return tensor(`INPUT${k}`, datatype, [1, 3], values);
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

Deno.test("onnxruntime: a scalar is taken as [] and as [1], and given as configured", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([{ type: TYPE.FLOAT, dims: [] }]),
  });
  assert.deepEqual(opened.source.config.input[0]?.dims, [1n]);
  for (const shape of [[], [1]]) {
    const request = opened.request([tensor("INPUT0", "FP32", shape, [5])]);
    const [output] = outputsOf((await opened.instance.execute([request])).outcomes[0]);
    assert.deepEqual([...output!.shape], [1]);
    assert.deepEqual(floats(output!), [5]);
  }
});

Deno.test("onnxruntime: a scalar may have any number of dimensions of size 1 in the configuration", async () => {
  const open = (dims: bigint[]) =>
    openInstance("onnxruntime", {
      model: identityModel([{ type: TYPE.FLOAT, dims: [] }]),
      config: {
        input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims }],
        output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims }],
      },
    });
  await using opened = await open([1n, 1n]);
  const request = opened.request([tensor("INPUT0", "FP32", [1, 1], [5])]);
  const [output] = outputsOf((await opened.instance.execute([request])).outcomes[0]);
  assert.deepEqual([...output!.shape], [1, 1]);
  assert.deepEqual(floats(output!), [5]);
  await assert.rejects(open([2n]), /scalar tensor 'INPUT0', should only provide 1/);
});

Deno.test("onnxruntime: tensors without elements pass", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([
      { type: TYPE.FLOAT, dims: ["batch", "n"] },
      { type: TYPE.STRING, dims: ["batch", "m"] },
    ]),
  });
  const request = opened.request([
    tensor("INPUT0", "FP32", [2, 0]),
    tensor("INPUT1", "BYTES", [2, 0], new Uint8Array(0)),
  ]);
  const outputs = outputsOf((await opened.instance.execute([request])).outcomes[0]);
  assert.deepEqual(outputs.map(({ shape, data }) => [...shape, data.length]), [[2, 0, 0], [
    2,
    0,
    0,
  ]]);
});

Deno.test("onnxruntime: a batch of rows that differ in other dimensions runs one by one", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", "n"] }]),
  });
  const requests = [2, 3].map((n) => opened.request([tensor("INPUT0", "FP32", [1, n])]));
  const { outcomes } = await opened.instance.execute(requests);
  assert.deepEqual(outcomes.map((each) => outputsOf(each)[0]?.shape.join()), ["1,2", "1,3"]);
  assert.equal(opened.retryCount(), 0);
});

Deno.test("onnxruntime: a failing batch is counted and its error has the runtime's words", async () => {
  await using opened = await openInstance("onnxruntime", { model: lookupModel() });
  const good = opened.request([tensor("INPUT0", "INT64", [1, 2], [1, 3])]);
  const bad = opened.request([tensor("INPUT0", "INT64", [1, 2], [1, 4])]);
  const { outcomes } = await opened.instance.execute([good, bad]);
  assert.equal(opened.retryCount(), 1);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [10, 30]);
  assert.throws(() => outputsOf(outcomes[1]), {
    code: "INTERNAL",
    message: /^onnx runtime error \d+: /,
  });
});

Deno.test("onnxruntime: an output with too few rows fails all requests and is named", async () => {
  const model = buildModel({
    nodes: [{
      op: "Compress",
      inputs: ["INPUT0", "first"],
      outputs: ["OUTPUT0"],
      attributes: { axis: 0 },
    }],
    inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["batch", 4] }],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["rows", 4] }],
    initializers: [{ name: "first", type: TYPE.BOOL, dims: [1], raw: Uint8Array.of(1) }],
  });
  await using opened = await openInstance("onnxruntime", { model, config: { maxBatchSize: 4 } });
  const request = opened.request([tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])]);
  const single = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(single.outcomes[0])[0]!), [1, 2, 3, 4]);
  const two = opened.request([tensor("INPUT0", "FP32", [2, 4])]);
  const { outcomes } = await opened.instance.execute([two]);
  assert.throws(() => outputsOf(outcomes[0]), {
    code: "INTERNAL",
    message: /'OUTPUT0'.*at least 2.*got 1/,
  });
});

Deno.test("onnxruntime: outputs whose shape the model does not tell pass, small and large", async () => {
  const model = buildModel({
    nodes: [{ op: "Reshape", inputs: ["INPUT0", "SHAPE"], outputs: ["OUTPUT0"] }],
    inputs: [
      { name: "INPUT0", type: TYPE.FLOAT, dims: ["n"] },
      { name: "SHAPE", type: TYPE.INT64, dims: ["rank"] },
    ],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT }],
  });
  await using opened = await openInstance("onnxruntime", { model });
  assert.equal(opened.source.config.maxBatchSize, 0);
  for (const [rows, columns] of [[2, 3], [100, 1000]] as const) {
    const values = Array.from({ length: rows * columns }, (_, index) => index);
    const request = opened.request([
      tensor("INPUT0", "FP32", [rows * columns], values),
      tensor("SHAPE", "INT64", [2], [rows, columns]),
    ]);
    const { outcomes } = await opened.instance.execute([request]);
    const [output] = outputsOf(outcomes[0]);
    assert.deepEqual([...output!.shape], [rows, columns]);
    assert.deepEqual(floats(output!), values);
    const { release } = outcomes[0] as { release?: () => void };
    release?.();
    // Memory of the runtime that was released is not readable any more.
    if (release !== undefined) assert.equal(output!.data.length, 0);
  }
});

Deno.test("onnxruntime: outputs of another shape than the signature tells are right all the same", async () => {
  const model = buildModel({
    nodes: [{
      op: "Concat",
      inputs: ["INPUT0", "INPUT0"],
      outputs: ["OUTPUT0"],
      attributes: { axis: 1 },
    }],
    inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["batch", "n"] }],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["batch", "n"] }],
  });
  await using opened = await openInstance("onnxruntime", { model });
  for (let run = 0; run < 3; run++) {
    const request = opened.request([tensor("INPUT0", "FP32", [1, 2], [1, 2])]);
    const { outcomes } = await opened.instance.execute([request]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 2, 1, 2]);
  }
});

Deno.test("onnxruntime: a run stops when the client of its only request has gone", async () => {
  await using opened = await openInstance("onnxruntime", { model: matmulChainModel(128, 4000) });
  const input = tensor("INPUT0", "FP32", [128, 128]);
  const controller = new AbortController();
  const request = opened.request([input], { signal: controller.signal });
  const start = performance.now();
  const running = opened.instance.execute([request]);
  setTimeout(() => controller.abort(), 5);
  const { outcomes } = await running;
  assert.throws(() => outputsOf(outcomes[0]), { code: "CANCELLED" });
  const stoppedMs = performance.now() - start;
  const full = await opened.instance.execute([opened.request([input])]);
  assert.ok(stoppedMs < performance.now() - start - stoppedMs, `stopped after ${stoppedMs} ms`);
  assert.equal(outputsOf(full.outcomes[0]).length, 1);
});

Deno.test("onnxruntime: an initializer can be replaced where it is optional", async () => {
  const model = buildModel({
    nodes: [{ op: "Add", inputs: ["INPUT0", "WEIGHT"], outputs: ["OUTPUT0"] }],
    inputs: [
      { name: "INPUT0", type: TYPE.FLOAT, dims: [1, 2] },
      { name: "WEIGHT", type: TYPE.FLOAT, dims: [2] },
    ],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: [1, 2] }],
    initializers: [{
      name: "WEIGHT",
      type: TYPE.FLOAT,
      dims: [2],
      raw: new Uint8Array(Float32Array.of(1, 1).buffer),
    }],
  });
  const dataType = DataType.TYPE_FP32;
  await using opened = await openInstance("onnxruntime", {
    model,
    config: {
      input: [
        { name: "INPUT0", dataType, dims: [1n, 2n] },
        { name: "WEIGHT", dataType, dims: [2n], optional: true },
      ],
      output: [{ name: "OUTPUT0", dataType, dims: [1n, 2n] }],
    },
  });
  const input = tensor("INPUT0", "FP32", [1, 2], [1, 2]);
  const weight = tensor("WEIGHT", "FP32", [2], [10, 20]);
  const without = await opened.instance.execute([opened.request([input])]);
  assert.deepEqual(floats(outputsOf(without.outcomes[0])[0]!), [2, 3]);
  const given = await opened.instance.execute([opened.request([input, weight])]);
  assert.deepEqual(floats(outputsOf(given.outcomes[0])[0]!), [11, 22]);
});

Deno.test("onnxruntime: an input the model needs is asked for even where it is optional", async () => {
  const dataType = DataType.TYPE_FP32;
  await using opened = await openInstance("onnxruntime", {
    model: addModel(["batch", 4]),
    config: {
      maxBatchSize: 8,
      input: [
        { name: "INPUT0", dataType, dims: [4n] },
        { name: "INPUT1", dataType, dims: [4n], optional: true },
      ],
      output: [{ name: "OUTPUT0", dataType, dims: [4n] }],
    },
  });
  const request = opened.request([tensor("INPUT0", "FP32", [1, 4])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.throws(() => outputsOf(outcomes[0]), { code: "INVALID_ARG", message: /'INPUT1'/ });
});

Deno.test("onnxruntime: requests may ask for different outputs in one batch", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([
      { type: TYPE.FLOAT, dims: ["batch", 1] },
      { type: TYPE.FLOAT, dims: ["batch", 1] },
    ]),
  });
  const inputs = (n: number) => [
    tensor("INPUT0", "FP32", [1, 1], [n]),
    tensor("INPUT1", "FP32", [1, 1], [n + 1]),
  ];
  const { outcomes } = await opened.instance.execute([
    opened.request(inputs(1), { outputs: ["OUTPUT1"] }),
    opened.request(inputs(5), { outputs: ["OUTPUT0"] }),
  ]);
  const shown = outcomes.map((each) =>
    outputsOf(each).map((output) => [output.name, ...floats(output)])
  );
  assert.deepEqual(shown, [[["OUTPUT1", 2]], [["OUTPUT0", 5]]]);
});

Deno.test("onnxruntime: weights in another file are found", async () => {
  const weights = new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer);
  const model = buildModel({
    nodes: [{ op: "Add", inputs: ["INPUT0", "WEIGHT"], outputs: ["OUTPUT0"] }],
    inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["batch", 4] }],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["batch", 4] }],
    initializers: [{
      name: "WEIGHT",
      type: TYPE.FLOAT,
      dims: [4],
      external: { location: "weights.bin", byteSize: 16 },
    }],
  });
  await using opened = await openInstance("onnxruntime", {
    model,
    files: { "weights.bin": weights },
  });
  const request = opened.request([tensor("INPUT0", "FP32", [1, 4])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 2, 3, 4]);
});
