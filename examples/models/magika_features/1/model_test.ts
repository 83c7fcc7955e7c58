import assert from "node:assert/strict";
import { fillRow } from "./model.ts";

function rowOf(content: Uint8Array): Int32Array {
  const row = new Int32Array(2048).fill(256);
  fillRow(row, content);
  return row;
}

Deno.test("fillRow() begins behind white space, and ends before it", () => {
  const row = rowOf(new TextEncoder().encode("\n\v\f\rab c \t"));
  assert.deepEqual([...row.subarray(0, 7)], [97, 98, 32, 99, 32, 9, 256]);
  assert.deepEqual([...row.subarray(-9)], [256, 10, 11, 12, 13, 97, 98, 32, 99]);
});

Deno.test("fillRow() leaves the row of an empty file empty", () => {
  assert.ok(rowOf(new Uint8Array()).every((value) => value === 256));
  assert.ok(rowOf(new Uint8Array(9000).fill(32)).every((value) => value === 256));
});

Deno.test("fillRow() takes 1024 bytes of each end of a large file", () => {
  const content = Uint8Array.from({ length: 10_000 }, (_, index) => 33 + index % 90);
  const row = rowOf(content);
  assert.deepEqual([...row.subarray(0, 1024)], [...content.subarray(0, 1024)]);
  assert.deepEqual([...row.subarray(1024)], [...content.subarray(-1024)]);
});

Deno.test("fillRow() looks for the first byte in the first 4096 only", () => {
  const content = new Uint8Array(5000).fill(32);
  content[4500] = 65;
  const row = rowOf(content);
  assert.equal(row[0], 256);
  assert.equal(row[2047], 65);
});
