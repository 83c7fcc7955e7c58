import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { TRT_TYPE } from "../../ffi/tensorrt/signature.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { engineSignature, engineTensor } from "./engine_fixture.ts";
import { canMerge, mergeInputs } from "./merge_inputs.ts";
import { createRunPlan, formatByteSize, type RunPlan } from "./run_plan.ts";

const config = create(ModelConfigSchema, {
  maxBatchSize: 8,
  input: [
    { name: "A", dataType: DataType.TYPE_FP32, dims: [2n] },
    { name: "S", dataType: DataType.TYPE_INT32, dims: [2n], isShapeTensor: true },
  ],
});
const plan: RunPlan = createRunPlan(
  config,
  engineSignature([
    engineTensor({ name: "A", dims: [-1, 2] }),
    engineTensor({ name: "S", type: TRT_TYPE.INT32, dims: [3], isShapeTensor: true }),
  ]),
  "m",
);

function floats(rows: number): Tensor {
  return { name: "A", datatype: "FP32", shape: [rows, 2], data: new Uint8Array(rows * 8) };
}

function sizes(...values: number[]): Tensor {
  const data = new Uint8Array(Int32Array.from(values).buffer);
  return { name: "S", datatype: "INT32", shape: [values.length], data };
}

function request(...inputs: Tensor[]) {
  return executeRequest({ inputs, outputs: ["O"] });
}

Deno.test("mergeInputs() joins rows and adds up the batch sizes of shape tensors", () => {
  const requests = [request(floats(1), sizes(1, 5, 6)), request(floats(3), sizes(3, 5, 6))];
  assert.ok(canMerge(plan, requests));
  const [a, s] = mergeInputs(plan, requests);
  assert.deepEqual([a!.shape, a!.byteSize, a!.parts.length], [[4, 2], 32, 2]);
  assert.deepEqual([...new Int32Array(s!.parts[0]!.data.slice().buffer)], [4, 5, 6]);
});

Deno.test("canMerge() takes no requests apart that agree, and joins none that do not", () => {
  const one = request(floats(1), sizes(1, 5, 6));
  assert.ok(!canMerge(plan, [one, request(floats(1), sizes(1, 5, 7))]));
  assert.ok(!canMerge(plan, [one, request(floats(1))]));
  assert.ok(!canMerge({ ...plan, isBatching: false }, [one, one]));
});

Deno.test("mergeInputs() refuses what is missing, unknown or of the wrong size", () => {
  const cases: [Tensor[], RegExp][] = [
    [[floats(1)], /model 'm' cannot run without input 'S'/],
    [[{ ...floats(1), name: "X" }, sizes(1, 2, 3)], /model 'm' has no input 'X'/],
    [
      [{ ...floats(1), datatype: "INT32" }, sizes(1, 2, 3)],
      /input 'A' of model 'm' is FP32, got INT32/,
    ],
    [
      [{ ...floats(1), shape: [2, 2] }, sizes(1, 2, 3)],
      /has 8 bytes, expected 16 for shape \[2,2\]/,
    ],
    [[floats(1), sizes(1, 2)], /shape tensor 'S' of model 'm' has 2 values, expected 3: the batch/],
  ];
  for (const [inputs, message] of cases) {
    assert.throws(() => mergeInputs(plan, [request(...inputs)]), { code: "INVALID_ARG", message });
  }
});

Deno.test("formatByteSize() fills packed dimensions up to whole packs", () => {
  const tensor = engineTensor({ name: "A", vectorizedDim: 1, componentsPerElement: 4 });
  const packed = { name: "A", datatype: "INT8", elementSize: 1, tensor } as const;
  assert.equal(formatByteSize(packed, [2, 3, 5, 5]), 2 * 4 * 5 * 5);
  assert.equal(formatByteSize({ ...packed, tensor: engineTensor({ name: "A" }) }, [2, 3]), 6);
  assert.equal(formatByteSize(packed, []), 1);
});
