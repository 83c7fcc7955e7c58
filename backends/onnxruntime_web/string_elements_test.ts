import assert from "node:assert/strict";
import { decodeStrings, encodeStrings } from "./string_elements.ts";

Deno.test("decodeStrings() reads what encodeStrings() writes", () => {
  for (const elements of [[], [""], ["a", "", "häß \u{1f600}"], ["\ufeffmark"]]) {
    const data = new Uint8Array(encodeStrings(elements));
    assert.deepEqual(decodeStrings(data, elements.length), elements);
  }
});

Deno.test("decodeStrings() refuses data that does not hold the elements", () => {
  const data = new Uint8Array(encodeStrings(["abc", "de"]));
  for (
    const [bytes, count] of [
      [data, 1],
      [data, 3],
      [data.subarray(0, -1), 2],
      [data.subarray(0, 2), 1],
      [new Uint8Array(0), 1e9],
    ] as const
  ) {
    assert.throws(() => decodeStrings(bytes, count), /does not hold the elements its shape tells/);
  }
});

Deno.test("decodeStrings() refuses elements that are no texts, with their number", () => {
  const data = Uint8Array.of(1, 0, 0, 0, 65, 1, 0, 0, 0, 0);
  assert.throws(() => decodeStrings(data, 2), /\(number 1\) that holds a byte 0/);
  data[9] = 0xff;
  assert.throws(() => decodeStrings(data, 2), /\(number 1\) that is not UTF-8/);
});
