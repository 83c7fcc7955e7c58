import assert from "node:assert/strict";
import { findNativeRefusal } from "./native_refusal.ts";

const refusal = (settings: Record<string, string>) =>
  findNativeRefusal(new Map(Object.entries(settings)));

Deno.test("findNativeRefusal() obeys 'runtime' and leaves a named library to the native backend", () => {
  assert.match(refusal({ runtime: "web" }) ?? "", /runtime=web asks for it/);
  assert.equal(refusal({ runtime: "native" }), undefined);
  assert.equal(refusal({ library: "/nowhere/libonnxruntime.so" }), undefined);
  assert.throws(() => refusal({ runtime: "wasm" }), { code: "INVALID_ARG", message: /got 'wasm'/ });
});
