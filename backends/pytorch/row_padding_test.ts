import assert from "node:assert/strict";
import { TorchError, type TorchValue } from "../../ffi/pytorch/mod.ts";
import { cutRows, leastRowsIn, padRows } from "./row_padding.ts";

const value = (shape: number[], data: number[]): TorchValue => ({
  ...{ name: "x", kind: "tensor", scalarType: 0, shape },
  data: Uint8Array.from(data),
});

Deno.test("leastRowsIn() reads what a package wants", () => {
  const refusal = (at: number, least: number) =>
    new TorchError(
      `input_handles[0]: dim value is too small at ${at}, expected it to be >= ${least}, but got: 1`,
    );
  assert.equal(leastRowsIn(refusal(0, 2)), 2);
  assert.equal(leastRowsIn(refusal(1, 2)), undefined);
  assert.equal(leastRowsIn(refusal(0, 1000)), undefined);
  assert.equal(leastRowsIn(new TorchError("something else")), undefined);
});

Deno.test("padRows() repeats the last row, cutRows() takes it away", () => {
  const sizes = { rows: 2, least: 4 };
  const [padded, other] = padRows([value([2, 2], [1, 2, 3, 4]), value([3], [7, 8, 9])], sizes);
  assert.deepEqual(padded!.shape, [4, 2]);
  assert.deepEqual([...padded!.data], [1, 2, 3, 4, 3, 4, 3, 4]);
  assert.deepEqual(other!.shape, [3]);
  const [cut] = cutRows([padded!], sizes);
  assert.deepEqual(cut!.shape, [2, 2]);
  assert.deepEqual([...cut!.data], [1, 2, 3, 4]);
});
