import assert from "node:assert/strict";
import { findElementCodes } from "./element_type.ts";

const sizesOf = (text: string) => {
  const sizes = text.split(" ").map((size) => size === "-" ? undefined : Number(size));
  return (code: number) => sizes[code];
};

Deno.test("findElementCodes() reads the numbering of today", () => {
  // dynamic boolean bf16 f16 f32 f64 i4 i8 i16 i32 i64 u1 u2 u3 u4 u6 u8 u16 u32 u64 nf4 f8 f8 string
  const codes = findElementCodes(sizesOf("- 1 2 2 4 8 1 1 2 4 8 1 1 3 1 3 1 2 4 8 1 1 1 32"));
  assert.equal(codes.get("f32"), 4);
  assert.equal(codes.get("i64"), 10);
  assert.equal(codes.get("u8"), 16);
  assert.equal(codes.get("u64"), 19);
});

Deno.test("findElementCodes() reads the numbering of 2022", () => {
  // undefined dynamic boolean bf16 f16 f32 f64 i4 i8 i16 i32 i64 u1 u4 u8 u16 u32 u64
  const codes = findElementCodes(sizesOf("- - 1 2 2 4 8 1 1 2 4 8 1 1 1 2 4 8"));
  assert.equal(codes.get("boolean"), 2);
  assert.equal(codes.get("f32"), 5);
  assert.equal(codes.get("u64"), 17);
});

Deno.test("findElementCodes() refuses a numbering it does not know", () => {
  assert.throws(() => findElementCodes(sizesOf("1 2 4 8 8")), TypeError);
  assert.throws(() => findElementCodes(() => undefined), TypeError);
});
