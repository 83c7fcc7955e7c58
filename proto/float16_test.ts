import assert from "node:assert/strict";
import { fromBfloat16Bits, fromFloat16Bits, toBfloat16Bits, toFloat16Bits } from "./float16.ts";

Deno.test("toFloat16Bits() undoes fromFloat16Bits() for every number", () => {
  for (let bits = 0; bits < 0x10000; bits++) {
    const value = fromFloat16Bits(bits);
    if (!Number.isNaN(value)) assert.equal(toFloat16Bits(value), bits);
  }
});

Deno.test("toBfloat16Bits() undoes fromBfloat16Bits() and rounds the middle to even", () => {
  for (let bits = 0; bits < 0x7f80; bits++) {
    const value = fromBfloat16Bits(bits);
    assert.equal(toBfloat16Bits(value), bits);
    assert.equal(toBfloat16Bits(-value), bits | 0x8000);
    const next = fromBfloat16Bits(bits + 1);
    if (next === Infinity) continue;
    assert.equal(toBfloat16Bits((value + next) / 2), bits % 2 === 0 ? bits : bits + 1);
  }
});

Deno.test("toFloat16Bits() rounds once, to even, up to infinity", () => {
  const cases: [number, number][] = [
    [65504, 0x7bff],
    [65519.99, 0x7bff],
    [65520, 0x7c00],
    [70000, 0x7c00],
    [-70000, 0xfc00],
    [2 ** -24, 1],
    [2 ** -25, 0],
    [2 ** -25 + 2 ** -60, 1],
    [3 * 2 ** -25, 2],
    // Through FP32 this would be rounded twice and become even.
    [1 + 2 ** -11 + 2 ** -40, 0x3c01],
    [Infinity, 0x7c00],
    [-0, 0x8000],
  ];
  for (const [value, bits] of cases) assert.equal(toFloat16Bits(value), bits, String(value));
  assert.ok(Number.isNaN(fromFloat16Bits(toFloat16Bits(NaN))));
  assert.ok(Number.isNaN(fromBfloat16Bits(toBfloat16Bits(NaN))));
});
