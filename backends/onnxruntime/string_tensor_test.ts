import assert from "node:assert/strict";
import { encodeStrings, stringRanges } from "./string_tensor.ts";

function bytesTensor(shape: number[], data: number[]) {
  return { name: "T", datatype: "BYTES" as const, shape, data: Uint8Array.from(data) };
}

Deno.test("stringRanges() finds the elements of all parts", () => {
  const { bytes, starts, ends } = stringRanges([
    bytesTensor([2], [1, 0, 0, 0, 65, 0, 0, 0, 0]),
    bytesTensor([1], [2, 0, 0, 0, 0, 66]),
  ]);
  const elements = [...starts].map((start, index) => [...bytes.subarray(start, ends[index])]);
  assert.deepEqual(elements, [[65], [], [0, 66]]);
  assert.equal(bytes.length, 16);
});

Deno.test("stringRanges() refuses data that does not fit its shape", () => {
  const cases: [number[], number[]][] = [
    [[2], [1, 0, 0, 0, 65]],
    [[1], [9, 0, 0, 0, 65]],
    [[1], [1, 0, 0, 0, 65, 7]],
    [[1], [1, 0]],
    [[1_000_000_000], []],
  ];
  for (const [shape, data] of cases) {
    assert.throws(() => stringRanges([bytesTensor(shape, data)]), { code: "INVALID_ARG" });
  }
});

Deno.test("encodeStrings() puts a length in front of each string", () => {
  const data = encodeStrings({
    bytes: Uint8Array.of(65, 0, 66),
    offsets: Float64Array.of(0, 2, 2, 3),
  });
  assert.deepEqual([...data], [2, 0, 0, 0, 65, 0, 0, 0, 0, 0, 1, 0, 0, 0, 66]);
});
