import assert from "node:assert/strict";
import { ELEMENT_TYPE, ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import { readSignature, runtimeTypeName } from "./web_signature.ts";

Deno.test("readSignature() shows free dimensions as -1 and keeps their symbols", async () => {
  const { inputs, outputs } = await readSignature("/nowhere/model.onnx", {
    inputs: [{ name: "X", type: "float16", dims: ["batch", 0xffff_ffff, 3] }],
    outputs: [{ name: "S", dims: [] }, { name: "Y", type: "bool", dims: [] }],
  });
  assert.deepEqual(inputs, [{
    name: "X",
    onnxType: ONNX_TYPE.TENSOR,
    elementType: ELEMENT_TYPE.FLOAT16,
    dims: [-1, -1, 3],
    symbols: ["batch", "", ""],
  }]);
  assert.equal(outputs[0]?.onnxType, ONNX_TYPE.UNKNOWN);
  assert.deepEqual(outputs[1]?.dims, []);
});

Deno.test("runtimeTypeName() names every type that readSignature() reads", () => {
  assert.equal(runtimeTypeName(ELEMENT_TYPE.INT64), "int64");
  assert.equal(runtimeTypeName(ELEMENT_TYPE.STRING), "string");
});
