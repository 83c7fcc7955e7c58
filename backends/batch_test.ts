import assert from "node:assert/strict";
import type { Tensor } from "../proto/tensor.ts";
import {
  canJoinRows,
  checkOutputRows,
  joinBytes,
  joinedByteSize,
  joinedShape,
  splitRows,
} from "./batch.ts";

function tensor(shape: number[], bytes: number[], datatype: Tensor["datatype"] = "UINT8"): Tensor {
  return { name: "T", datatype, shape, data: Uint8Array.from(bytes) };
}

Deno.test("joinedShape() and joinBytes() put rows one behind the other", () => {
  const parts = [tensor([1, 2], [1, 2]), tensor([2, 2], [3, 4, 5, 6])];
  assert.deepEqual(joinedShape(parts), [3, 2]);
  const target = new Uint8Array(joinedByteSize(parts));
  joinBytes(parts, target);
  assert.deepEqual([...target], [1, 2, 3, 4, 5, 6]);
});

Deno.test("canJoinRows() compares all dimensions but the first", () => {
  assert.equal(canJoinRows([tensor([1, 2], []), tensor([5, 2], [])]), true);
  assert.equal(canJoinRows([tensor([1, 2], []), tensor([1, 3], [])]), false);
  assert.equal(canJoinRows([tensor([1, 2], []), tensor([1, 2, 1], [])]), false);
});

Deno.test("splitRows() cuts fixed-size elements without a copy", () => {
  const output = tensor([3, 2], [1, 2, 3, 4, 5, 6]);
  const [first, second] = splitRows(output, [1, 2]);
  assert.deepEqual(first?.shape, [1, 2]);
  assert.deepEqual([...first?.data ?? []], [1, 2]);
  assert.deepEqual(second?.shape, [2, 2]);
  assert.deepEqual([...second?.data ?? []], [3, 4, 5, 6]);
  assert.equal(second?.data.buffer, output.data.buffer);
});

Deno.test("splitRows() leaves rows out that no request asked for", () => {
  const [only] = splitRows(tensor([3, 1], [1, 2, 3]), [2]);
  assert.deepEqual([...only?.data ?? []], [1, 2]);
});

Deno.test("splitRows() follows the lengths of BYTES elements", () => {
  const output = tensor(
    [2, 2],
    [1, 0, 0, 0, 65, 0, 0, 0, 0, 2, 0, 0, 0, 66, 67, 0, 0, 0, 0],
    "BYTES",
  );
  const [first, second] = splitRows(output, [1, 1]);
  assert.deepEqual([...first?.data ?? []], [1, 0, 0, 0, 65, 0, 0, 0, 0]);
  assert.deepEqual([...second?.data ?? []], [2, 0, 0, 0, 66, 67, 0, 0, 0, 0]);
});

Deno.test("splitRows() handles tensors without elements", () => {
  const [first, second] = splitRows(tensor([2, 0], []), [1, 1]);
  assert.deepEqual(first?.shape, [1, 0]);
  assert.equal(second?.data.byteLength, 0);
});

Deno.test("checkOutputRows() names the output that has too few rows", () => {
  checkOutputRows("Y", [3, 4], 3);
  assert.throws(() => checkOutputRows("Y", [1, 4], 3), /'Y'.*at least 3.*got 1/);
  assert.throws(() => checkOutputRows("Y", [], 1), /'Y'.*scalar/);
});
