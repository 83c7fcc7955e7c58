import assert from "node:assert/strict";
import type { Datatype } from "../../proto/datatype.ts";
import { formatTensor } from "./trace_tensor.ts";

function text(datatype: Datatype, data: ArrayBufferView, max = 1000): string | undefined {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return formatTensor({ name: "t", datatype, shape: [1], data: bytes }, max)?.data;
}

Deno.test("formatTensor() writes elements with commas between them", () => {
  assert.equal(text("INT32", Int32Array.of(-1, 2)), "-1,2");
  assert.equal(text("UINT64", BigUint64Array.of(2n ** 64n - 1n)), "18446744073709551615");
  assert.equal(text("FP32", Float32Array.of(0.1, -0, 1e30, NaN)), "0.1,0,1e+30,NaN");
  assert.equal(text("FP64", Float64Array.of(0.1, 1e-300)), "0.1,1e-300");
  assert.equal(text("BOOL", Uint8Array.of(0, 1, 7)), "0,1,1");
  assert.equal(text("FP16", Uint8Array.of(0, 60)), "");
  assert.equal(text("BYTES", Uint8Array.of(2, 0, 0, 0, 104, 105, 0, 0, 0, 0)), '"hi",""');
});

Deno.test("formatTensor() reads no further than the data, and writes no more than it may", () => {
  assert.equal(text("BYTES", Uint8Array.of(255, 255, 255, 255, 104)), '"h"');
  assert.equal(text("INT32", Uint8Array.of(1, 0, 0, 0, 2)), "1");
  assert.equal(text("INT32", new Int32Array(1000), 10), "0,0,0,0,0");
  assert.equal(text("INT32", new Int32Array(1), 0), undefined);
  const { shape, dtype } = formatTensor(
    { name: "t", datatype: "INT8", shape: [2, 3], data: new Uint8Array(6) },
    100,
  )!;
  assert.deepEqual([shape, dtype], ["2,3", "INT8"]);
});
