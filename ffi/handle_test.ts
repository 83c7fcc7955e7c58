import assert from "node:assert/strict";
import { NativeHandle, type NativePointer } from "./handle.ts";

class Example extends NativeHandle {
  constructor(destroyed: bigint[]) {
    super(Deno.UnsafePointer.create(64n)!, (pointer: NativePointer) => {
      destroyed.push(Deno.UnsafePointer.value(pointer));
    });
  }
}

Deno.test("NativeHandle destroys its object once", () => {
  const destroyed: bigint[] = [];
  const example = new Example(destroyed);
  assert.equal(example.disposed, false);
  example[Symbol.dispose]();
  example[Symbol.dispose]();
  assert.deepEqual(destroyed, [64n]);
  assert.equal(example.disposed, true);
});

Deno.test("NativeHandle refuses its pointer after disposal", () => {
  const example = new Example([]);
  assert.notEqual(example.pointer, null);
  example[Symbol.dispose]();
  assert.throws(() => example.pointer, { name: "TypeError", message: /Example: it is disposed/ });
});
