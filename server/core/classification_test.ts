import assert from "node:assert/strict";
import type { Datatype } from "../../proto/datatype.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { classify } from "./classification.ts";

function tensor(datatype: Datatype, shape: readonly number[], values: ArrayBufferView): Tensor {
  // One byte off, as views into a message often are.
  const bytes = new Uint8Array(values.byteLength + 1);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), 1);
  return { name: "O", datatype, shape, data: bytes.subarray(1) };
}

function texts({ data }: Tensor): string[] {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const result: string[] = [];
  for (let offset = 0; offset < data.length;) {
    const length = view.getUint32(offset, true);
    result.push(new TextDecoder().decode(data.subarray(offset + 4, offset + 4 + length)));
    offset += 4 + length;
  }
  return result;
}

const LABELS = ["cat", "tabby dog", "", "flügel:wing"];
const FLOATS = Float32Array.of(0.5, 3.25, -1, 8, 0.1, 2);

Deno.test("classify() gives the best classes of each row with their labels", () => {
  const options = { count: 3, isBatched: true, labels: LABELS };
  const result = classify(tensor("FP32", [1, 6], FLOATS), options);
  assert.deepEqual(result.shape, [1, 3]);
  assert.deepEqual(texts(result), ["8.000000:3:flügel:wing", "3.250000:1:tabby dog", "2.000000:5"]);
  const rows = classify(tensor("FP32", [2, 3], FLOATS), { ...options, count: 1 });
  assert.deepEqual(rows.shape, [2, 1]);
  assert.deepEqual(texts(rows), ["3.250000:1:tabby dog", "8.000000:0:cat"]);
});

Deno.test("classify() without a batch takes the tensor as one row", () => {
  const result = classify(tensor("FP32", [2, 3], FLOATS), {
    count: 100,
    isBatched: false,
    labels: undefined,
  });
  assert.deepEqual(result.shape, [6]);
  assert.deepEqual(texts(result).at(-1), "-1.000000:2");
});

Deno.test("classify() prints integers as such, up to 64 bits", () => {
  const values = BigUint64Array.of(1n, 18446744073709551615n, 9223372036854775808n);
  const options = { count: 3, isBatched: true, labels: undefined };
  assert.deepEqual(texts(classify(tensor("UINT64", [1, 3], values), options)), [
    "18446744073709551615:1",
    "9223372036854775808:2",
    "1:0",
  ]);
  const small = classify(tensor("INT8", [1, 3], Int8Array.of(-3, 7, 7)), options);
  assert.deepEqual(texts(small), ["7:1", "7:2", "-3:0"]);
});

Deno.test("classify() prints floats with six decimals and NaN last", () => {
  const values = Float64Array.of(1e-7, 1e22, NaN, -Infinity, 0.1234567);
  const result = classify(tensor("FP64", [5], values), {
    count: 5,
    isBatched: false,
    labels: undefined,
  });
  assert.deepEqual(texts(result), [
    "10000000000000000000000.000000:1",
    "0.123457:4",
    "0.000000:0",
    "-inf:3",
    "nan:2",
  ]);
});

Deno.test("classify() prints floats as printf does at zero and halfway between two numbers", () => {
  const values = Float32Array.of(3 / 128, 1 / 128, -0, -1e-9, -1 / 128);
  const result = classify(tensor("FP32", [5], values), {
    count: 5,
    isBatched: false,
    labels: undefined,
  });
  assert.deepEqual(texts(result), [
    "0.023438:0",
    "0.007812:1",
    "-0.000000:2",
    "-0.000000:3",
    "-0.007812:4",
  ]);
});

Deno.test("classify() selects a few of many as it sorts all", () => {
  const values = Float32Array.from({ length: 5000 }, (_, index) => (index * 7919) % 5003);
  const few = classify(tensor("FP32", [5000], values), {
    count: 5,
    isBatched: false,
    labels: undefined,
  });
  const expected = [...values.keys()].sort((a, b) => values[b]! - values[a]!).slice(0, 5);
  assert.deepEqual(texts(few).map((text) => Number(text.split(":")[1])), expected);
});

Deno.test("classify() of no rows gives none", () => {
  const options = { count: 2, isBatched: true, labels: undefined };
  const result = classify(tensor("FP32", [0, 6], new Float32Array()), options);
  assert.equal(result.data.length, 0);
});

for (const datatype of ["BOOL", "FP16", "BF16", "BYTES"] as const) {
  Deno.test(`classify() refuses ${datatype}`, () => {
    assert.throws(
      () =>
        classify(tensor(datatype, [1, 2], new Uint8Array(4)), {
          count: 1,
          isBatched: true,
          labels: undefined,
        }),
      {
        code: "INVALID_ARG",
        message: `class result not available for output due to unsupported type '${datatype}'`,
      },
    );
  });
}

Deno.test("classify() refuses rows of more than a million elements", () => {
  assert.throws(
    () =>
      classify(tensor("UINT8", [1_000_001], new Uint8Array(1_000_001)), {
        count: 1,
        isBatched: false,
        labels: undefined,
      }),
    { code: "INVALID_ARG", message: "classification output tensor too large" },
  );
});
