import assert from "node:assert/strict";
import type { Datatype } from "../../proto/datatype.ts";
import type { ModelTensor } from "./model_api.ts";
import { pickTensor } from "./worker_tensors.ts";

const IN: ModelTensor = { datatype: "FP32", shape: [1], data: Float32Array.of(1) };

function pick(name: string, datatype: unknown) {
  return pickTensor({ IN }, { name, datatype: datatype as Datatype, what: "input" }, "INVALID_ARG");
}

Deno.test("pickTensor() picks a tensor of the name and the datatype that are asked for", () => {
  assert.equal(pick("IN", "FP32"), IN);
  assert.throws(() => pick("X", "FP32"), { message: "there is no input 'X', there are 'IN'" });
  assert.throws(() => pick("IN", "INT32"), {
    code: "INVALID_ARG",
    message: "expected input 'IN' to be INT32, got FP32",
  });
});

Deno.test("pickTensor() says how it is called, if no datatype is asked for", () => {
  for (const [datatype, got] of [[undefined, "undefined"], ["float", '"float"'], [7, "7"]]) {
    assert.throws(() => pick("IN", datatype), {
      name: "TypeError",
      message: "expected the datatype of input 'IN' as second argument, such as " +
        `input("IN", "FP32"), got ${got}`,
    });
  }
});
