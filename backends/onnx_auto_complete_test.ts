import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../proto/gen/model_config_pb.ts";
import { ELEMENT_TYPE, ONNX_TYPE } from "../ffi/onnxruntime/element_type.ts";
import type { TensorSignature } from "../ffi/onnxruntime/signature.ts";
import { completeConfig } from "./onnx_auto_complete.ts";

function signature(
  name: string,
  dims: number[] | undefined,
  elementType: number = ELEMENT_TYPE.FLOAT,
): TensorSignature {
  return {
    name,
    onnxType: ONNX_TYPE.TENSOR,
    elementType,
    dims,
    symbols: (dims ?? []).map(() => ""),
  };
}

type Init = Parameters<typeof create<typeof ModelConfigSchema>>[1];

function complete(
  init: Init,
  inputs: TensorSignature[],
  outputs: TensorSignature[],
  defaultMaxBatchSize?: number,
) {
  const config = create(ModelConfigSchema, init);
  const signature = { inputs, outputs, overridableInitializers: [] };
  completeConfig(config, signature, { modelName: "m", defaultMaxBatchSize });
  return config;
}

Deno.test("completeConfig() finds batching where all first dimensions are free", () => {
  const config = complete({}, [signature("X", [-1, 4])], [signature("Y", [-1])]);
  assert.equal(config.maxBatchSize, 4);
  assert.equal(config.schedulingChoice.case, "dynamicBatching");
  assert.deepEqual(config.input[0]?.dims, [4n]);
  assert.deepEqual(config.output[0]?.dims, [1n]);
  assert.deepEqual(config.output[0]?.reshape?.shape, []);
});

Deno.test("completeConfig() finds no batching with a fixed, scalar or unknown shape", () => {
  for (const dims of [[2, 4], [], undefined]) {
    const config = complete({}, [signature("X", [-1, 4])], [signature("Y", dims)]);
    assert.equal(config.maxBatchSize, 0);
    assert.equal(config.schedulingChoice.case, undefined);
    assert.deepEqual(config.input[0]?.dims, [-1n, 4n]);
    assert.equal(config.output[0]?.reshape, undefined);
  }
});

Deno.test("completeConfig() obeys the default batch size, and adds no batcher for 1", () => {
  const tensors = [[signature("X", [-1])], [signature("Y", [-1])]] as const;
  assert.equal(complete({}, [...tensors[0]], [...tensors[1]], 16).maxBatchSize, 16);
  assert.equal(complete({}, [...tensors[0]], [...tensors[1]], -3).maxBatchSize, 0);
  const one = complete({}, [...tensors[0]], [...tensors[1]], 1);
  assert.equal(one.schedulingChoice.case, undefined);
});

Deno.test("completeConfig() leaves a configuration with inputs and outputs alone", () => {
  const config = complete(
    { input: [{ name: "A" }], output: [{ name: "B" }] },
    [signature("X", [-1])],
    [signature("Y", [-1])],
  );
  assert.equal(config.maxBatchSize, 0);
  assert.deepEqual(config.input.map(({ name }) => name), ["A"]);
});

Deno.test("completeConfig() leaves out what the sequence batcher feeds", () => {
  const config = complete(
    {
      maxBatchSize: 2,
      schedulingChoice: {
        case: "sequenceBatching",
        value: {
          controlInput: [{ name: "START", control: [{}] }],
          state: [{ inputName: "IN", outputName: "OUT" }],
        },
      },
    },
    ["X", "START", "IN"].map((name) => signature(name, [-1, 1])),
    ["Y", "OUT"].map((name) => signature(name, [-1, 1])),
  );
  assert.deepEqual(config.input.map(({ name }) => name), ["X"]);
  assert.deepEqual(config.output.map(({ name }) => name), ["Y"]);
  assert.equal(config.schedulingChoice.case, "sequenceBatching");
});

Deno.test("completeConfig() refuses what cannot be served, and names it", () => {
  assert.throws(
    () => complete({ maxBatchSize: 2 }, [signature("X", [2])], [signature("Y", [-1])]),
    /does not support batching/,
  );
  assert.throws(
    () => complete({}, [signature("X", [2], ELEMENT_TYPE.COMPLEX64)], [signature("Y", [2])]),
    /'X'.*COMPLEX64/,
  );
  const sequence = { ...signature("Y", undefined), onnxType: ONNX_TYPE.SEQUENCE };
  assert.throws(() => complete({}, [], [sequence]), /'ONNX_TYPE_SEQUENCE' for I\/O 'Y'/);
});
