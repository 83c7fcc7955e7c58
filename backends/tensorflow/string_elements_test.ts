import assert from "node:assert/strict";
import { stringElements } from "./string_elements.ts";

const part = (...bytes: number[]) => ({
  name: "x",
  datatype: "BYTES" as const,
  shape: [1],
  // Not at the start of its block.
  data: Uint8Array.from([9, ...bytes]).subarray(1),
});

Deno.test("stringElements() takes elements out of all parts in order", () => {
  const parts = [part(1, 0, 0, 0, 65, 0, 0, 0, 0), part(2, 0, 0, 0, 66, 67)];
  assert.deepEqual(stringElements("x", parts, 3).map((each) => [...each]), [[65], [], [66, 67]]);
});

Deno.test("stringElements() refuses data that does not hold the elements", () => {
  const cases = [
    { parts: [part(1, 0, 0)], count: 1 },
    { parts: [part(2, 0, 0, 0, 65)], count: 1 },
    { parts: [part(255, 255, 255, 255, 65)], count: 1 },
    { parts: [part(0, 0, 0, 0)], count: 2 },
    { parts: [part(0, 0, 0, 0), part(0, 0, 0, 0)], count: 1 },
    { parts: [], count: 1 },
  ];
  for (const { parts, count } of cases) {
    assert.throws(
      () => stringElements("x", parts, count),
      { message: `BYTES data of input 'x' does not hold the ${count} elements its shape tells` },
    );
  }
});
