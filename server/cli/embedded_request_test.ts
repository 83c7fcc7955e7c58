import assert from "node:assert/strict";
import { completeRequest } from "./embedded_request.ts";

Deno.test("completeRequest() fills in what the protocol presumes", () => {
  const request = completeRequest({
    modelName: "m",
    inputs: [{ name: "X", datatype: "FP32", shape: [1], data: new Float32Array([1]) }],
    outputs: ["Y", { name: "Z", classificationCount: 2 }],
  });
  assert.equal(request.modelVersion, "");
  assert.equal(request.correlationId, 0n);
  assert.deepEqual(request.inputs[0]?.data, new Uint8Array([0, 0, 128, 63]));
  assert.deepEqual(request.outputs, [
    { name: "Y", classificationCount: 0 },
    { name: "Z", classificationCount: 2 },
  ]);
});

Deno.test("completeRequest() takes views without a copy, and texts as BYTES elements", () => {
  const whole = new Float32Array([1, 2, 3]);
  const request = completeRequest({
    modelName: "m",
    inputs: [
      { name: "X", datatype: "FP32", shape: [2], data: whole.subarray(1) },
      { name: "S", datatype: "BYTES", shape: [2], data: ["ä", new Uint8Array([0])] },
    ],
  });
  assert.equal(request.inputs[0]?.data.buffer, whole.buffer);
  assert.equal(request.inputs[0]?.data.byteOffset, 4);
  assert.deepEqual(
    request.inputs[1]?.data,
    new Uint8Array([2, 0, 0, 0, 0xc3, 0xa4, 1, 0, 0, 0, 0]),
  );
});
