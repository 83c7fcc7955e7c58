import assert from "node:assert/strict";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { DataType, type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { type EngineSignature, TRT_TYPE } from "../../ffi/tensorrt/signature.ts";
import { completeConfig, isComplete } from "./auto_complete.ts";
import { engineSignature, engineTensor, rowsEngine, rowsProfile } from "./engine_fixture.ts";

type Init = Exclude<MessageInitShape<typeof ModelConfigSchema>, ModelConfig>;

function complete(init: Init, engine: EngineSignature = rowsEngine()): ModelConfig {
  const config = create(ModelConfigSchema, { name: "m", ...init });
  completeConfig(config, engine, "m");
  return config;
}

const FP32 = DataType.TYPE_FP32;

Deno.test("completeConfig() fills all of an empty configuration", () => {
  const config = complete({});
  assert.equal(config.maxBatchSize, 8);
  assert.equal(config.schedulingChoice.case, "dynamicBatching");
  assert.deepEqual(config.input.map(({ name, dataType, dims }) => [name, dataType, dims]), [
    ["INPUT", FP32, [16n]],
  ]);
  assert.deepEqual(config.output.map(({ name, dims }) => [name, dims]), [["OUTPUT", [16n]]]);
  assert.ok(isComplete(config));
});

Deno.test("completeConfig() fills what listed tensors leave out, and keeps what they say", () => {
  const config = complete({
    maxBatchSize: 4,
    input: [{ name: "INPUT", dataType: FP32 }],
    output: [{ name: "OUTPUT", dims: [16n] }],
    schedulingChoice: { case: "sequenceBatching", value: {} },
  });
  assert.equal(config.maxBatchSize, 4);
  assert.equal(config.schedulingChoice.case, "sequenceBatching");
  assert.deepEqual(config.input[0]!.dims, [16n]);
  assert.equal(config.output[0]!.dataType, FP32);
});

Deno.test("completeConfig() takes full dims for the wish not to batch", () => {
  const config = complete({ input: [{ name: "INPUT", dataType: FP32, dims: [-1n, 16n] }] });
  assert.equal(config.maxBatchSize, 0);
  assert.equal(config.schedulingChoice.case, undefined);
  assert.deepEqual(config.output[0]!.dims, [-1n, 16n]);
});

Deno.test("completeConfig() refuses contradictions about batching", () => {
  const both: Init = {
    input: [{ name: "INPUT", dataType: FP32, dims: [-1n, 16n] }],
    output: [{ name: "OUTPUT", dataType: FP32, dims: [16n] }],
  };
  assert.throws(() => complete(both), /contradicting each other in terms of whether batching is/);
  assert.throws(() => complete({ maxBatchSize: 9 }), {
    message:
      /unable to autofill for 'm', configuration specified max-batch 9 but TensorRT engine only supports max-batch 8/,
  });
  const fixed = engineSignature([engineTensor({ name: "A", dims: [2, 16] })]);
  assert.throws(
    () => complete({ maxBatchSize: 1 }, fixed),
    /does not support batching while non-ze/,
  );
});

Deno.test("completeConfig() describes shape tensors, packed formats and scalars", () => {
  const engine = engineSignature([
    engineTensor({ name: "A", profiles: [rowsProfile(1, 8)], format: 3 }),
    engineTensor({ name: "S", type: TRT_TYPE.INT64, dims: [3], isShapeTensor: true }),
    engineTensor({ name: "ROWS", isInput: false, dims: [-1] }),
  ]);
  const config = complete({}, engine);
  const [packed, sizes] = config.input;
  assert.ok(packed!.isNonLinearFormatIo && !packed!.isShapeTensor);
  assert.deepEqual([sizes!.dims, sizes!.isShapeTensor, sizes!.dataType], [
    [2n],
    true,
    DataType.TYPE_INT64,
  ]);
  assert.deepEqual([config.output[0]!.dims, config.output[0]!.reshape?.shape], [[1n], []]);
});

Deno.test("completeConfig() refuses types that the protocol cannot carry", () => {
  const engine = engineSignature([engineTensor({ name: "A", type: TRT_TYPE.INT4 })]);
  assert.throws(() => complete({}, engine), {
    code: "UNSUPPORTED",
    message: "tensor 'A' of model 'm' cannot be served: its type INT4 has no counterpart",
  });
});

Deno.test("completeConfig() leaves tensors to the sequence batcher that it feeds", () => {
  const engine = engineSignature([
    engineTensor({ name: "A", profiles: [rowsProfile(1, 8)] }),
    engineTensor({
      name: "START",
      dims: [-1, 1],
      profiles: [{ min: [1, 1], opt: [8, 1], max: [8, 1] }],
    }),
    engineTensor({ name: "OUT", isInput: false }),
  ]);
  const controlInput = [{ name: "START" }];
  const config = complete({
    schedulingChoice: { case: "sequenceBatching", value: { controlInput } },
  }, engine);
  assert.deepEqual(config.input.map(({ name }) => name), ["A"]);
});
