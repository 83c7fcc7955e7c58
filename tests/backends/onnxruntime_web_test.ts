import assert from "node:assert/strict";
import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { identityModel, lookupModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { bytesData, type ConfigInit, floats, openInstance, outputsOf, tensor } from "./fixture.ts";

runBackendSuite({
  name: "onnxruntime_web",
  open: (config, instanceCount = 1) =>
    openInstance("onnxruntime_web", {
      model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]),
      config,
      instanceCount,
    }),
  async failing() {
    const opened = await openInstance("onnxruntime_web", { model: lookupModel() });
    return { ...opened, failing: 1, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});

const NAME = "onnxruntime_web";

const ONNX_TYPES: Partial<Record<Datatype, number>> = {
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
};

Deno.test(`${NAME}: tensors of every datatype but BF16 pass, one by one and batched`, async () => {
  const datatypes = Object.keys(ONNX_TYPES) as Datatype[];
  await using opened = await openInstance(NAME, {
    model: identityModel(
      datatypes.map((each) => ({ type: ONNX_TYPES[each]!, dims: ["batch", 3] })),
    ),
  });
  const inputsFrom = (start: number) =>
    datatypes.map((datatype, index) => {
      const values = datatype === "BYTES"
        ? bytesData([`text ${start}`, "", "häß \u{1f600}"])
        : Uint8Array.from(
          { length: 3 * DATATYPES[datatype].byteSize },
          (_, i) => datatype === "BOOL" ? i & 1 : start + i,
        );
      return tensor(`INPUT${index}`, datatype, [1, 3], values);
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

Deno.test(`${NAME}: scalars and tensors without elements pass`, async () => {
  await using scalar = await openInstance(NAME, {
    model: identityModel([{ type: TYPE.FLOAT, dims: [] }]),
  });
  for (const shape of [[], [1]]) {
    const request = scalar.request([tensor("INPUT0", "FP32", shape, [5])]);
    const [output] = outputsOf((await scalar.instance.execute([request])).outcomes[0]);
    assert.deepEqual([...output!.shape], [1]);
    assert.deepEqual(floats(output!), [5]);
  }
  await using empty = await openInstance(NAME, {
    model: identityModel([
      { type: TYPE.FLOAT, dims: ["batch", "n"] },
      { type: TYPE.STRING, dims: ["batch", "m"] },
    ]),
  });
  const request = empty.request([
    tensor("INPUT0", "FP32", [2, 0]),
    tensor("INPUT1", "BYTES", [2, 0], new Uint8Array(0)),
  ]);
  const outputs = outputsOf((await empty.instance.execute([request])).outcomes[0]);
  assert.deepEqual(outputs.map(({ shape, data }) => [...shape, data.length].join()), [
    "2,0,0",
    "2,0,0",
  ]);
});

Deno.test(`${NAME}: free dimensions are -1, with a name or without`, async () => {
  await using opened = await openInstance(NAME, {
    model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", null, "n", 3] }]),
  });
  const { config } = opened.source;
  assert.deepEqual(config.input[0]?.dims, [-1n, -1n, 3n]);
  assert.equal(config.maxBatchSize, 4);
  assert.equal(config.schedulingChoice.case, "dynamicBatching");
});

Deno.test(`${NAME}: configurations are refused in the words of the native backend`, async () => {
  const model = identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]);
  const tensorOf = (name: string, dataType: DataType, dims: bigint[]) => ({ name, dataType, dims });
  const input = [tensorOf("INPUT0", DataType.TYPE_FP32, [4n])];
  const output = [tensorOf("OUTPUT0", DataType.TYPE_FP32, [4n])];
  const configs: ConfigInit[] = [
    { maxBatchSize: 4, input: [tensorOf("INPUT0", DataType.TYPE_INT32, [4n])], output },
    { maxBatchSize: 4, input: [tensorOf("OTHER", DataType.TYPE_FP32, [4n])], output },
    { maxBatchSize: 4, input: [tensorOf("INPUT0", DataType.TYPE_FP32, [5n])], output },
    { maxBatchSize: 4, input: [...input, tensorOf("X", DataType.TYPE_FP32, [1n])], output },
    { maxBatchSize: 4, input, output: [tensorOf("Y", DataType.TYPE_FP32, [4n])] },
    { maxBatchSize: 0, input, output },
    { input, parameters: { execution_mode: { stringValue: "2" } } },
    { input, parameters: { intra_op_thread_count: { stringValue: "many" } } },
  ];
  const reason = async (backend: string, config: ConfigInit) => {
    try {
      await using _opened = await openInstance(backend, { model, config });
      return "none";
    } catch (error) {
      return `${(error as { code: string }).code}: ${(error as Error).message}`;
    }
  };
  for (const config of configs) {
    const native = await reason("onnxruntime", config);
    assert.notEqual(native, "none");
    assert.equal(await reason(NAME, config), native);
  }
});

Deno.test(`${NAME}: strings that are no texts are refused, the rest of the batch is served`, async () => {
  await using opened = await openInstance(NAME, {
    model: identityModel([{ type: TYPE.STRING, dims: ["batch", 1] }]),
  });
  const request = (element: Uint8Array | string) =>
    opened.request([tensor("INPUT0", "BYTES", [1, 1], bytesData([element]))]);
  const { outcomes } = await opened.instance.execute([
    request("good"),
    request(Uint8Array.of(65, 0, 65)),
    request(Uint8Array.of(0xff, 0xfe)),
  ]);
  assert.deepEqual(outputsOf(outcomes[0])[0]?.data, bytesData(["good"]));
  assert.throws(() => outputsOf(outcomes[1]), { code: "INVALID_ARG", message: /holds a byte 0/ });
  assert.throws(() => outputsOf(outcomes[2]), { code: "INVALID_ARG", message: /is not UTF-8/ });
});
