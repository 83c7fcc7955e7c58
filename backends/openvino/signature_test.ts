import assert from "node:assert/strict";
import { namePorts, ovElementType, toSignature } from "./signature.ts";

Deno.test("toSignature() keeps names, dims and types", () => {
  const signature = toSignature({
    inputs: [{ name: "x", elementType: "i64", elementCode: 10, dims: [-1, 3] }],
    outputs: [{ name: "y", elementType: "bf16", elementCode: 2, dims: undefined }],
  }, "m");
  const [input] = signature.inputs;
  assert.equal(input!.name, "x");
  assert.deepEqual(input!.dims, [-1, 3]);
  assert.equal(ovElementType(input!.elementType), "i64");
  assert.equal(ovElementType(signature.outputs[0]!.elementType), "bf16");
  assert.equal(signature.outputs[0]!.dims, undefined);
});

Deno.test("toSignature() names a tensor it cannot serve, and a way out", () => {
  const text = { name: "words", elementType: undefined, elementCode: 23, dims: [1] };
  assert.throws(
    () => toSignature({ inputs: [text], outputs: [] }, "m"),
    /model 'm', input 'words' has OpenVINO element type number 23.*'onnxruntime'/,
  );
});

Deno.test("namePorts() takes the output's number from names of frozen graphs only", () => {
  const port = { name: "x:0", elementType: "f32", elementCode: 4, dims: [1] } as const;
  const ports = { inputs: [port], outputs: [] };
  assert.equal(namePorts(ports, "/m/1/model.graphdef").inputs[0]!.name, "x");
  assert.equal(namePorts(ports, "/m/1/model.onnx").inputs[0]!.name, "x:0");
});
