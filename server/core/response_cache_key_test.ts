import assert from "node:assert/strict";
import type { Tensor } from "../../proto/tensor.ts";
import { type KeyedRequest, requestKey } from "./response_cache_key.ts";

const X: Tensor = {
  name: "X",
  datatype: "FP32",
  shape: [1, 2],
  data: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8),
};

function request(change: Partial<KeyedRequest> = {}): KeyedRequest {
  return {
    inputs: [X],
    outputs: ["Y"],
    parameters: {},
    ...change,
  };
}

Deno.test("requestKey() is the same for equal requests", () => {
  const copy = { ...X, shape: [...X.shape], data: X.data.slice() };
  assert.equal(requestKey(request({ inputs: [copy] }), 3), requestKey(request(), 3));
  const odd = new Uint8Array(9).subarray(1);
  odd.set(X.data);
  assert.equal(requestKey(request({ inputs: [{ ...X, data: odd }] }), 3), requestKey(request(), 3));
  assert.equal(
    requestKey(request({ parameters: { a: 1n, b: 2n } }), 0),
    requestKey(request({ parameters: { b: 2n, a: 1n } }), 0),
  );
  assert.match(requestKey(request(), 0), /^[0-9a-f]{64}$/);
});

Deno.test("requestKey() differs in whatever may change the answer", () => {
  const two = (first: number) => [
    { ...X, data: X.data.subarray(0, first) },
    { ...X, name: "Z", data: X.data.subarray(first) },
  ];
  const changes: Partial<KeyedRequest>[] = [
    {},
    { inputs: [{ ...X, name: "x" }] },
    { inputs: [{ ...X, datatype: "INT32" }] },
    { inputs: [{ ...X, shape: [2, 1] }] },
    { inputs: [{ ...X, data: X.data.toReversed() }] },
    { inputs: [X, X] },
    { inputs: two(3) },
    { inputs: two(4) },
    { inputs: [] },
    { outputs: ["Z"] },
    { outputs: ["Y", "Z"] },
    { outputs: ["Z", "Y"] },
    { outputs: ['Y","Z'] },
    { parameters: { a: 1n } },
    { parameters: { a: 1 } },
    { parameters: { a: "1" } },
    { parameters: { a: true } },
    { parameters: { a: "true" } },
    { parameters: { b: 1n } },
    { parameters: { a: 0 } },
    { parameters: { a: -0 } },
  ];
  const keys = changes.map((change) => requestKey(request(change), 0));
  assert.equal(new Set(keys).size, changes.length);
  assert.notEqual(requestKey(request(), 1), keys[0]);
});
