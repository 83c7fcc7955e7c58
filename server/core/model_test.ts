import assert from "node:assert/strict";
import { Model, type ModelParts } from "./model.ts";

Deno.test("disposing a Model frees every instance and then the model, also when one fails", async () => {
  const freed: string[] = [];
  const part = (name: string, fault?: Error) => ({
    [Symbol.asyncDispose]: () => {
      freed.push(name);
      return fault === undefined ? Promise.resolve() : Promise.reject(fault);
    },
  });
  const parts = {
    version: 1,
    instances: [part("first"), part("second", new Error("no"))],
    backendModel: part("model"),
  } as unknown as ModelParts;
  await assert.rejects(new Model(parts)[Symbol.asyncDispose](), { message: "no" });
  assert.deepEqual(freed, ["second", "first", "model"]);
});
