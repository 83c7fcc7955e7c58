import assert from "node:assert/strict";
import { encodeBytesTensor } from "../../proto/bytes_tensor.ts";
import type { ModelTensor } from "./model_api.ts";
import { viewArray } from "./tensor_arrays.ts";
import { concatTensors, splitTensor } from "./worker_rows.ts";

function floats(shape: readonly number[], values: readonly number[]): ModelTensor {
  return { datatype: "FP32", shape, data: Float32Array.from(values) };
}

Deno.test("concatTensors() joins rows, and hands one tensor on as it is", () => {
  const first = floats([1, 2], [1, 2]);
  assert.equal(concatTensors([first], "A"), first);
  const joined = concatTensors([first, floats([2, 2], [3, 4, 5, 6])], "A");
  assert.deepEqual(joined, floats([3, 2], [1, 2, 3, 4, 5, 6]));
});

Deno.test("concatTensors() joins BYTES", () => {
  const [a, b] = [["x", "yy"], ["z"]].map((texts): ModelTensor => ({
    datatype: "BYTES",
    shape: [texts.length],
    data: viewArray("BYTES", encodeBytesTensor(texts)),
  }));
  const joined = concatTensors([a!, b!], "A");
  assert.equal(joined.datatype, "BYTES");
  assert.deepEqual((joined.data as { texts(): string[] }).texts(), ["x", "yy", "z"]);
});

Deno.test("concatTensors() refuses rows of different shapes", () => {
  assert.throws(() => concatTensors([floats([1, 1], [1]), floats([1, 2], [1, 2])], "A"), {
    code: "INVALID_ARG",
    message: /\[1,1\] and \[1,2\]/,
  });
  assert.throws(() => concatTensors([], "A"), { code: "INVALID_ARG" });
});

Deno.test("splitTensor() cuts rows as views", () => {
  const tensor = floats([3, 2], [1, 2, 3, 4, 5, 6]);
  const [first, second] = splitTensor(tensor, [1, 2]);
  assert.deepEqual(first, floats([1, 2], [1, 2]));
  assert.deepEqual(second, floats([2, 2], [3, 4, 5, 6]));
  assert.equal((second!.data as Float32Array).buffer, (tensor.data as Float32Array).buffer);
  const texts = splitTensor({ shape: [2], data: ["a", "b"] }, [1, 1]);
  assert.deepEqual(texts.map(({ data }) => data), [["a"], ["b"]]);
  assert.throws(() => splitTensor(tensor, [1]), { code: "INVALID_ARG" });
});
