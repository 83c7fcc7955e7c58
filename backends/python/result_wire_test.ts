import assert from "node:assert/strict";
import { PeerMemory } from "../process/peer_memory.ts";
import { formatParameters, readParameters } from "../process/wire_values.ts";
import { readError, readResult } from "./result_wire.ts";
import type { PeerSlot } from "../process/tensor_wire.ts";

Deno.test("readParameters() keeps integers of any size, and tells doubles from them", () => {
  assert.deepEqual(readParameters('{"a":9007199254740993,"b":1.0,"c":true,"d":"x","e":-1e3}'), {
    a: 9007199254740993n,
    b: 1,
    c: true,
    d: "x",
    e: -1000,
  });
  assert.equal(readParameters("{}"), undefined);
  assert.equal(readParameters(undefined), undefined);
});

Deno.test("formatParameters() writes doubles with a point, so that they stay doubles", () => {
  const text = formatParameters({ a: 2, b: 2n, c: -0.5, d: 'q"', e: false, f: 1e300 });
  assert.equal(text, '{"a":2.0,"b":2,"c":-0.5,"d":"q\\"","e":false,"f":1e+300}');
});

for (const text of ["[]", "1", '{"a":null}', '{"a":{}}', "{"]) {
  Deno.test(`readParameters() refuses ${text}`, () => {
    assert.throws(() => readParameters(text));
  });
}

Deno.test("readError() gives the code of a number", () => {
  const { code, message } = readError([3, "bad"]);
  assert.equal(code, "INVALID_ARG");
  assert.equal(message, "bad");
  for (const wrong of [[9, "x"], ["3", "x"], [3, 4], [3], "x", null]) {
    assert.throws(() => readError(wrong), RangeError);
  }
});

const IN_FRAME = { payload: new Uint8Array(16), peer: undefined };

Deno.test("readResult() gives views of the frame", () => {
  const result = readResult({ o: [["A", "FP32", [1, 2], -1, 8, 8]] }, IN_FRAME, () => {});
  assert.ok("outputs" in result);
  const [output] = result.outputs;
  assert.equal(output!.data.buffer, IN_FRAME.payload.buffer);
  assert.deepEqual([output!.data.byteOffset, output!.data.byteLength], [8, 8]);
  assert.equal(result.release, undefined);
});

Deno.test("readResult() gives views of the process's memory, which release() gives back once", () => {
  let disposedCount = 0;
  const bytes = new Uint8Array(4096);
  const peer = new PeerMemory(() => ({ bytes, [Symbol.dispose]: () => void disposedCount++ }));
  const freed: PeerSlot[] = [];
  const result = readResult(
    { o: [["A", "UINT8", [100], 5, 64, 100]], p: '{"k":1}' },
    { payload: new Uint8Array(), peer },
    (slots) => void freed.push(...slots),
  );
  assert.ok("outputs" in result);
  assert.equal(result.outputs[0]!.data.byteOffset, 64);
  assert.deepEqual(result.parameters, { k: 1n });
  peer.close();
  assert.equal(disposedCount, 0);
  result.release!();
  result.release!();
  assert.deepEqual(freed, [[5, 64]]);
  assert.equal(disposedCount, 1);
});

const REFUSED: readonly [string, unknown][] = [
  ["no result", null],
  ["no list of outputs", {}],
  ["five parts", { o: [["A", "FP32", [1], -1, 0]] }],
  ["an unknown datatype", { o: [["A", "FP31", [1], -1, 0, 4]] }],
  ["a name that is no text", { o: [[1, "FP32", [1], -1, 0, 4]] }],
  ["a negative dimension", { o: [["A", "FP32", [-1], -1, 0, 4]] }],
  ["a dimension that is no integer", { o: [["A", "FP32", [0.5], -1, 0, 4]] }],
  ["a shape that is text", { o: [["A", "FP32", "1", -1, 0, 4]] }],
  ["too many dimensions", { o: [["A", "FP32", Array(65).fill(1), -1, 0, 4]] }],
  ["a shape beyond all memory", { o: [["A", "FP32", [2 ** 40, 2 ** 40], -1, 0, 4]] }],
  ["a size that is not that of the shape", { o: [["A", "FP32", [2], -1, 0, 4]] }],
  ["an end behind the frame", { o: [["A", "UINT8", [17], -1, 0, 17]] }],
  ["a negative offset", { o: [["A", "UINT8", [1], -1, -1, 1]] }],
  ["an offset that is null", { o: [["A", "UINT8", [1], -1, null, 1]] }],
  ["memory that is not shared", { o: [["A", "UINT8", [1], 3, 0, 1]] }],
];

for (const [what, result] of REFUSED) {
  Deno.test(`readResult() refuses ${what}`, () => {
    assert.throws(() => readResult(result, IN_FRAME, () => {}));
  });
}

Deno.test("PeerMemory refuses parts that are not inside a segment", () => {
  const segment = { bytes: new Uint8Array(100), [Symbol.dispose]() {} };
  const peer = new PeerMemory(() => segment);
  assert.equal(peer.view(3, 0, 100).length, 100);
  for (const [offset, byteSize] of [[0, 101], [100, 1], [-1, 5], [0, -1], [NaN, 1], [2 ** 60, 1]]) {
    assert.throws(() => peer.view(3, offset!, byteSize!), RangeError);
  }
  for (const number of [-2, 1.5, NaN, 2 ** 40]) {
    assert.throws(() => peer.view(number, 0, 1), RangeError);
  }
});
