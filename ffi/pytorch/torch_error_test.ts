import assert from "node:assert/strict";
import { torchErrorIn } from "./torch_error.ts";

Deno.test("torchErrorIn() keeps the lines of the model, not the stack of libtorch", () => {
  const text = 'It failed.\n  File "a.py", line 3   \n\nRuntimeError: sizes\n' +
    "Exception raised from infer at /x.cpp:1 (most recent call first):\nframe #0: y\n";
  const bytes = new TextEncoder().encode(`${text}\0 what was there before`);
  const { message } = torchErrorIn(bytes);
  assert.equal(message, 'It failed.\n  File "a.py", line 3\nRuntimeError: sizes');
});

Deno.test("torchErrorIn() bounds the text", () => {
  const bytes = new Uint8Array(8192).fill(0x61);
  bytes[8191] = 0;
  assert.equal(torchErrorIn(bytes).message.length, 4000);
});
