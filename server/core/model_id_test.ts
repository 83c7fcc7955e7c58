import assert from "node:assert/strict";
import { isAmbiguousName, modelId, splitModelId } from "./model_id.ts";

Deno.test("modelId() is undone by splitModelId()", () => {
  for (const namespace of ["", "/models", "/a::b/c"]) {
    const parts = { namespace, name: "m:1" };
    assert.deepEqual(splitModelId(modelId(parts)), parts);
  }
  assert.equal(modelId({ namespace: "/models", name: "m" }), "/models::m");
  assert.equal(modelId({ namespace: "", name: "a::b" }), "a::b");
  assert.deepEqual(splitModelId("a::b"), { namespace: "", name: "a::b" });
  assert.equal(isAmbiguousName("a::b"), true);
});
