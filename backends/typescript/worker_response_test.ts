// deno-lint-ignore-file camelcase -- the names of config.pbtxt
import assert from "node:assert/strict";
import type { InferResponse, ModelConfigObject } from "./model_api.ts";
import { codedError } from "./worker_errors.ts";
import { encodeResponse, responseRules } from "./worker_response.ts";

const CONFIG: ModelConfigObject = {
  name: "m",
  backend: "typescript",
  max_batch_size: 8,
  input: [],
  output: [
    { name: "F", data_type: "TYPE_FP32", dims: [2] },
    { name: "T", data_type: "TYPE_STRING", dims: [-1] },
    { name: "B", data_type: "TYPE_BOOL", dims: [1] },
    { name: "H", data_type: "TYPE_BF16", dims: [1], reshape: { shape: [] } },
  ],
  parameters: {},
};

function encode(response: unknown, batchSize = 1, requestedOutputs = ["F", "T", "B", "H"]) {
  const request = { requestedOutputs, batchSize };
  return encodeResponse(response as InferResponse, request, responseRules(CONFIG));
}

function messageOf(response: unknown): string {
  const encoded = encode(response);
  assert.ok("error" in encoded, Deno.inspect(encoded));
  return encoded.error.message;
}

const F = { shape: [1, 2], data: Float32Array.of(1, 2) };

Deno.test("encodeResponse() takes datatypes from the configuration", () => {
  const outputs = {
    F,
    T: { shape: [1, 2], data: ["a", Uint8Array.of(1)] },
    B: { shape: [1, 1], data: Uint8Array.of(1) },
    H: { shape: [1], data: Uint16Array.of(1) },
  };
  const encoded = encode({ outputs });
  assert.ok("tensors" in encoded, Deno.inspect(encoded));
  assert.deepEqual(encoded.tensors.map(({ name, datatype }) => [name, datatype]), [
    ["F", "FP32"],
    ["T", "BYTES"],
    ["B", "BOOL"],
    ["H", "BF16"],
  ]);
});

Deno.test("encodeResponse() leaves out what was not asked for", () => {
  const encoded = encode({ outputs: { F, T: "wrong", X: 5 } }, 1, ["F"]);
  assert.ok("tensors" in encoded);
  assert.deepEqual(encoded.tensors.map(({ name }) => name), ["F"]);
});

Deno.test("encodeResponse() says what is wrong with an output", () => {
  const output = (more: object) => ({ outputs: { F: { ...F, ...more } } });
  assert.match(messageOf(output({ shape: [1, 3] })), /\[1,3\], which takes 3 elements.*has 2/);
  assert.match(messageOf(output({ shape: [2, 1] })), /must have the shape \[-1,2\], got \[2,1\]/);
  assert.match(messageOf(output({ shape: [-1, -2] })), /whole numbers from 0 on/);
  assert.match(messageOf(output({ shape: undefined })), /Shape of tensor 'F'/);
  assert.match(messageOf(output({ data: [1, 2] })), /must be a typed array or a list of texts/);
  assert.match(messageOf(output({ data: new Int8Array(2) })), /configured as FP32.*INT8/);
  assert.match(messageOf(output({ datatype: "INT8" })), /said to be INT8.*a Float32Array/);
  assert.match(messageOf(output({ datatype: "X" })), /said to be X/);
  assert.match(messageOf({ outputs: { F: 5 } }), /must be \{ shape, data \}, got 5/);
  const rows = { outputs: { F: { shape: [2, 2], data: new Float32Array(4) } } };
  assert.match(messageOf(rows), /must have 1 rows like the request/);
  assert.match(messageOf({ parameters: {} }), /must have outputs or error/);
  assert.match(messageOf(5), /got 5/);
  assert.match(messageOf({ outputs: {}, parameters: { p: null } }), /Parameter 'p'/);
  assert.match(messageOf({ outputs: {}, parameters: { p: 2n ** 64n } }), /64 bits/);
  const many = Object.fromEntries(Array.from({ length: 10_001 }, (_, index) => [`p${index}`, 1]));
  assert.match(
    messageOf({ outputs: {}, parameters: many }),
    /at most 10000 parameters, got 10001/,
  );
});

Deno.test("encodeResponse() keeps the code of an error that the model gives", () => {
  assert.deepEqual(encode({ error: codedError("NOT_FOUND", "none") }), {
    error: { code: "NOT_FOUND", message: "none", isGiven: true },
  });
  const plain = encode({ error: new Error("plain") });
  assert.ok("error" in plain);
  assert.deepEqual([plain.error.code, plain.error.isGiven], ["INTERNAL", false]);
});
