import assert from "node:assert/strict";
import { encodeBytesTensor } from "./bytes_tensor.ts";
import type { Datatype } from "./datatype.ts";
import { JsonReader } from "./json_reader.ts";
import { readTensorData } from "./json_tensor_reader.ts";
import { writeTensorData } from "./json_tensor_writer.ts";
import { JsonWriter } from "./json_writer.ts";
import { ServerError } from "./status.ts";

const MAX_BYTES = 1 << 20;

function read(datatype: Datatype, text: string, elementCount: number): Uint8Array {
  const reader = new JsonReader(new TextEncoder().encode(text));
  const data = readTensorData(reader, {
    name: "I",
    datatype,
    elementCount,
    maxByteSize: MAX_BYTES,
  });
  reader.finish();
  return data;
}

function write(datatype: Datatype, data: Uint8Array): string {
  const writer = new JsonWriter();
  writer.begin();
  writeTensorData(writer, { name: "O", datatype, shape: [], data });
  return new TextDecoder().decode(writer.finish());
}

Deno.test("readTensorData() and writeTensorData() undo each other", () => {
  const cases: [Datatype, number, string, string?][] = [
    ["BOOL", 3, "[true,false,true]"],
    ["UINT8", 3, "[0,255,128]"],
    ["UINT8", 3, "[256,300,18446744073709551615]", "[0,44,255]"],
    ["UINT16", 2, "[0,65535]"],
    ["UINT32", 3, "[0,4294967295,2147483648]"],
    ["UINT64", 4, "[0,18446744073709551615,9223372036854775808,9007199254740993]"],
    ["INT8", 4, "[-128,127,0,-1]"],
    ["INT8", 2, "[300,-129]", "[44,127]"],
    ["INT16", 2, "[-32768,32767]"],
    ["INT32", 2, "[-2147483648,2147483647]"],
    ["INT64", 4, "[-9223372036854775808,9223372036854775807,9007199254740993,-4294967296]"],
    [
      "FP32",
      4,
      "[0.1,1,16777217,1e-45]",
      "[0.10000000149011612,1.0,16777216.0,1.401298464324817e-45]",
    ],
    ["FP32", 4, "[NaN,Infinity,-Inf,-0.0]", "[NaN,Infinity,-Infinity,-0.0]"],
    ["FP64", 4, "[0.1,1.7976931348623157e+308,5e-324,9007199254740992.0]"],
    ["FP16", 3, "[0.1,65504,-2]", "[0.0999755859375,65504.0,-2.0]"],
    ["BF16", 2, "[1.00390625,3]", "[1.0,3.0]"],
    ["FP16", 1, "[Infinity]"],
    ["BYTES", 3, '["a\\"\\u0000\\n","","ä😀"]'],
    ["INT32", 4, "[[[1],[2,3]],4]", "[1,2,3,4]"],
    ["INT32", 2, "[[], [ 1 ,[2] ],[[]]]", "[1,2]"],
  ];
  for (const [datatype, count, text, expected = text] of cases) {
    assert.equal(write(datatype, read(datatype, text, count)), expected);
  }
});

Deno.test("readTensorData() refuses elements of a wrong type", () => {
  const cases: [Datatype, string, string][] = [
    ["BOOL", "[1]", "non-boolean as boolean"],
    ["INT32", "[1.5]", "non-signed-integer as signed-integer"],
    ["INT32", "[1.0]", "non-signed-integer as signed-integer"],
    ["INT64", "[9223372036854775808]", "non-signed-integer as signed-integer"],
    ["UINT8", "[-1]", "non-unsigned-integer as unsigned-integer"],
    ["INT32", '["1"]', "non-signed-integer as signed-integer"],
    ["INT8", "[NaN]", "non-signed-integer as signed-integer"],
    ["FP32", "[null]", "non-number as double"],
    ["FP32", "[true]", "non-number as double"],
    ["FP32", "5", "non-array as array"],
    ["BYTES", "[5]", "non-string as string"],
  ];
  for (const [datatype, text, problem] of cases) {
    assert.throws(() => read(datatype, text, 1), {
      code: "INVALID_ARG",
      message: `Unable to parse 'data': attempt to access JSON ${problem}`,
    });
  }
});

Deno.test("readTensorData() refuses numbers that FP16 and BF16 cannot hold", () => {
  assert.throws(() => read("FP16", "[70000]", 1), /70000 of input 'I' is beyond the range of FP16/);
  assert.throws(() => read("FP16", "[-65520]", 1), /beyond the range of FP16/);
  assert.throws(() => read("BF16", "[3.4e38]", 1), /beyond the range of BF16/);
});

Deno.test("readTensorData() compares the number of elements with the shape", () => {
  assert.throws(() => read("FP32", "[1,2,3]", 2), /Shape does not match true shape of 'data'/);
  assert.throws(() => read("FP32", "[1,2,3]", 4), /shape does not match true shape/);
  assert.throws(() => read("UINT8", "[1]", 2 ** 20), /shape does not match true shape/);
  assert.throws(
    () => read("FP32", "[1]", 2 ** 40),
    /JSON input 'I' has a byte_size \(4398046511104 bytes\)/,
  );
  assert.equal(read("BYTES", '["a"]', 3).length, 5, "left to the core");
});

Deno.test("readTensorData() reports malformed text with its offset", () => {
  for (const text of ["[1,", "[", "[1,]", "[1 2]", "[[1]", "[1,x]", "[,1]", "[[,1]]"]) {
    assert.throws(() => read("FP32", text.padEnd(30), 8), (reason: unknown) => {
      assert.ok(reason instanceof ServerError);
      assert.match(reason.message, /^failed to parse the request JSON buffer: .* at \d+$/, text);
      return true;
    });
  }
  assert.throws(() => read("INT32", "[".repeat(200), 8), /nesting depth exceeds/);
});

Deno.test("writeTensorData() reads tensors at any alignment", () => {
  const memory = new Uint8Array(21);
  const data = memory.subarray(5, 21);
  new DataView(memory.buffer).setFloat64(5, 0.5, true);
  new DataView(memory.buffer).setFloat64(13, -3, true);
  assert.equal(write("FP64", data), "[0.5,-3.0]");
});

Deno.test("writeTensorData() refuses bytes that are no text", () => {
  const data = encodeBytesTensor(["a", Uint8Array.of(0xff, 0x41)]);
  assert.throws(() => write("BYTES", data), { code: "INVALID_ARG", message: /not UTF-8 text/ });
  assert.throws(() => write("BYTES", Uint8Array.of(9, 0, 0, 0, 1)), { code: "INTERNAL" });
});

Deno.test("JsonWriter keeps finished documents as they are", () => {
  const writer = new JsonWriter();
  const texts: string[] = [];
  const documents: Uint8Array[] = [];
  for (let index = 0; index < 300; index++) {
    const text = `"${String(index).repeat(index * 7)}"`;
    writer.begin();
    writer.string(text.slice(1, -1));
    texts.push(text);
    documents.push(writer.finish());
  }
  assert.deepEqual(documents.map((document) => new TextDecoder().decode(document)), texts);
});
