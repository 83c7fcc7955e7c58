import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { checkTensors, resolveNames } from "./naming.ts";

const dataType = DataType.TYPE_FP32;
const config = (inputs: readonly string[], outputs: readonly string[]) =>
  create(ModelConfigSchema, {
    name: "m",
    input: inputs.map((name) => ({ name, dataType, dims: [1n] })),
    output: outputs.map((name) => ({ name, dataType, dims: [1n] })),
  });
const TWO = [
  { name: "x", type: "Tensor", isOptional: false },
  { name: "y", type: "Tensor", isOptional: false },
];
const PAIR = "Tuple[Tensor, Tensor]";

Deno.test("resolveNames() puts inputs in the order of forward, by number or by name", () => {
  for (const names of [["INPUT__1", "INPUT__0"], ["y", "x"], ["y", "any__0"]]) {
    const { inputOrder } = resolveNames(config(names, ["OUTPUT__1"]), {
      inputs: TWO,
      returns: PAIR,
    });
    assert.deepEqual(inputOrder, [names[1], names[0]]);
  }
});

Deno.test("resolveNames() takes keys of dictionaries as they are", () => {
  const inputs = [{ name: "given", type: "Dict[str, Tensor]", isOptional: false }];
  const naming = resolveNames(config(["a", "b"], ["sum"]), { inputs, returns: inputs[0]!.type });
  assert.equal(naming.inputsAreDict, true);
  assert.deepEqual([...naming.outputIndices], [["sum", undefined]]);
});

Deno.test("resolveNames() takes any name for an only output", () => {
  const naming = resolveNames(config(["x", "y"], ["z"]), { inputs: TWO, returns: "Tensor" });
  assert.deepEqual([...naming.outputIndices], [["z", 0]]);
});

Deno.test("resolveNames() tells every name that fits nothing", () => {
  const refuse = (inputs: string[], outputs: string[], expected: RegExp) =>
    assert.throws(
      () => resolveNames(config(inputs, outputs), { inputs: TWO, returns: PAIR }),
      expected,
    );
  refuse(
    ["x", "z"],
    ["OUTPUT__0"],
    /unexpected inference input 'z' of model 'm', forward takes: x, y/,
  );
  refuse(["x", "INPUT__2"], ["OUTPUT__0"], /unexpected inference input 'INPUT__2'/);
  refuse(["x", "INPUT__0"], ["OUTPUT__0"], /inputs 'x' and 'INPUT__0' .* are both argument 0/);
  refuse(["x"], ["OUTPUT__0"], /lists no input for argument 'y' of forward/);
  refuse(["x", "y"], ["sum"], /output 'sum' .* name it OUTPUT__<index>/);
});

Deno.test("checkTensors() wants inputs and outputs, which a file does not tell", () => {
  assert.throws(() => checkTensors(config([], ["OUTPUT__0"])), /model 'm' must list its inputs/);
});
