import assert from "node:assert/strict";
import { BatchInput_Kind as Kind } from "../proto/gen/model_config_pb.ts";
import type { Tensor } from "../proto/tensor.ts";
import { createBatchInput } from "./batch_input.ts";

const SOURCES: Tensor[] = [[1, 3], [2, 2], [1, 1]].map((shape) => ({
  name: "RAGGED",
  datatype: "FP32",
  shape,
  data: new Uint8Array(0),
}));

const CASES: [Kind, number[], number[]][] = [
  [Kind.BATCH_ELEMENT_COUNT, [3], [3, 4, 1]],
  [Kind.BATCH_ACCUMULATED_ELEMENT_COUNT, [3], [3, 7, 8]],
  [Kind.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO, [4], [0, 3, 7, 8]],
  [Kind.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE, [4], [0, 0, 0, 0]],
  [Kind.BATCH_ITEM_SHAPE, [4, 1], [3, 2, 2, 1]],
  [Kind.BATCH_ITEM_SHAPE_FLATTEN, [4], [3, 2, 2, 1]],
];

for (const [kind, shape, values] of CASES) {
  Deno.test(`createBatchInput() makes ${Kind[kind]}`, () => {
    const whole = createBatchInput({ kind, targetName: "N", datatype: "INT32" }, SOURCES);
    assert.deepEqual(whole.shape, shape);
    assert.deepEqual([...new Int32Array(whole.data.buffer as ArrayBuffer)], values);
    const real = createBatchInput({ kind, targetName: "N", datatype: "FP32" }, SOURCES);
    assert.deepEqual([...new Float32Array(real.data.buffer as ArrayBuffer)], values);
    assert.equal(real.datatype, "FP32");
  });
}
