import assert from "node:assert/strict";
import {
  addressOf,
  ALIGNMENT,
  allocateAligned,
  cString,
  CStringArray,
  pointerAt,
  readCString,
  whileHolding,
} from "./memory.ts";

Deno.test("allocateAligned() gives bytes at a multiple of the alignment, even for none", () => {
  for (const size of [0, 1, 63, 64, 65, 100_000]) {
    const bytes = allocateAligned(size);
    assert.equal(bytes.length, Math.max(size, 1));
    assert.equal(addressOf(bytes) % BigInt(ALIGNMENT), 0n);
  }
});

Deno.test("cString() ends with a zero byte and is read back", () => {
  const text = cString("größe");
  assert.equal(text.at(-1), 0);
  assert.equal(readCString(pointerAt(addressOf(text))), "größe");
  assert.equal(readCString(null), "");
});

Deno.test("CStringArray points at each of its strings", () => {
  const names = new CStringArray(["a", "", "name with / and :"]);
  assert.equal(names.length, 3);
  const read = [...names.array].map((address) => readCString(pointerAt(address)));
  assert.deepEqual(read, ["a", "", "name with / and :"]);
});

Deno.test("whileHolding() gives what the call gives, and passes its failure on", async () => {
  const cell = new Uint8Array(8);
  assert.equal(await whileHolding([cell], () => Promise.resolve(5)), 5);
  await assert.rejects(
    whileHolding([cell], () => Promise.reject(new RangeError("no"))),
    RangeError,
  );
});
