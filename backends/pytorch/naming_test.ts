import assert from "node:assert/strict";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  BatchInput_Kind,
  DataType,
  type ModelConfig,
  ModelConfigSchema,
} from "../../proto/gen/model_config_pb.ts";
import { indexIn, resolveNames } from "./naming.ts";

const dataType = DataType.TYPE_FP32;
type ConfigInit = Exclude<MessageInitShape<typeof ModelConfigSchema>, ModelConfig>;
const config = (inputs: readonly string[], outputs: readonly string[], more: ConfigInit = {}) =>
  create(ModelConfigSchema, {
    name: "m",
    input: inputs.map((name) => ({ name, dataType, dims: [1n] })),
    output: outputs.map((name) => ({ name, dataType, dims: [1n] })),
    ...more,
  });
const argument = (name: string, type = "Tensor", isOptional = false) => ({
  name,
  type,
  isOptional,
});
const TWO = [argument("x"), argument("y")];
const PAIR = "Tuple[Tensor, Tensor]";
const namesOf = (inputs: string[], wanted = TWO) =>
  resolveNames(config(inputs, ["OUTPUT__0"]), { inputs: wanted, returns: PAIR });

Deno.test("resolveNames() finds inputs by argument, by number, else by order with a warning", () => {
  const cases: readonly [names: string[], x: string, warns: boolean][] = [
    [["y", "x"], "x", false],
    [["INPUT__1", "any__0"], "any__0", false],
    [["one", "two"], "one", true],
    [["y", "any__0"], "y", true],
    [["a__b__1", "c__0"], "a__b__1", true],
  ];
  for (const [names, x, warns] of cases) {
    const { inputs, warnings } = namesOf(names);
    assert.deepEqual(inputs.map((each) => each.argument), ["x", "y"]);
    assert.equal(inputs[0]!.name, x, names.join());
    assert.equal(warnings.length > 0, warns, names.join());
  }
  const [warning] = namesOf(["y", "two"]).warnings;
  assert.match(warning!, /^input 'two' or previous input\(s\) are neither an input argument/);
});

Deno.test("resolveNames() takes keys of dictionaries as they are", () => {
  const inputs = [argument("given", "Dict[str, Tensor]")];
  const naming = resolveNames(config(["a", "b"], ["sum"]), { inputs, returns: inputs[0]!.type });
  assert.equal(naming.inputsAreDict, true);
  assert.deepEqual(naming.inputs.map((each) => each.argument), ["a", "b"]);
  assert.deepEqual([...naming.outputIndices], [["sum", undefined]]);
});

Deno.test("resolveNames() finds outputs by number, else by order", () => {
  const places = (
    outputs: string[],
    returns: string,
  ) => [...resolveNames(config(["x", "y"], outputs), { inputs: TWO, returns }).outputIndices];
  assert.deepEqual(places(["z"], "Tensor"), [["z", 0]]);
  assert.deepEqual(places(["OUT__1", "OUT__0"], PAIR), [["OUT__1", 1], ["OUT__0", 0]]);
  assert.deepEqual(places(["b", "OUT__0"], PAIR), [["b", 0], ["OUT__0", 1]]);
  assert.deepEqual(places(["a__7"], "List[Tensor]"), [["a__7", 7]]);
});

Deno.test("resolveNames() leaves out arguments with defaults", () => {
  const wanted = [argument("x"), argument("scale", "float", true), argument("y", "Tensor", true)];
  assert.deepEqual(namesOf(["x"], wanted).inputs, [{
    name: "x",
    argument: "x",
    isOptional: false,
  }]);
  assert.deepEqual(namesOf(["y", "x"], wanted).inputs.map(({ name }) => name), ["x", "y"]);
});

Deno.test("resolveNames() puts generated inputs behind the others when order decides", () => {
  const batchInput = [{
    kind: BatchInput_Kind.BATCH_ELEMENT_COUNT,
    targetName: ["COUNT"],
    dataType,
    sourceInput: ["a"],
  }];
  const { inputs } = resolveNames(config(["a"], ["OUTPUT__0"], { batchInput }), {
    inputs: TWO,
    returns: PAIR,
  });
  assert.deepEqual(inputs.map(({ name }) => name), ["a", "COUNT"]);
});

Deno.test("resolveNames() tells every name that fits nothing", () => {
  const refuse = (inputs: string[], outputs: string[], expected: RegExp) =>
    assert.throws(
      () => resolveNames(config(inputs, outputs), { inputs: TWO, returns: PAIR }),
      expected,
    );
  refuse(["x"], ["OUTPUT__0"], /configuration expects 1 inputs, model provides 2/);
  refuse(["INPUT__0", "INPUT__2"], ["OUTPUT__0"], /forward takes: x, y; expected one of these/);
  refuse(["a__0", "b__0"], ["OUTPUT__0"], /inputs 'a__0' and 'b__0' .* are both argument 0/);
  refuse(["x", "y"], ["OUTPUT__2"], /number 2 of what forward returns, .* last number is 1/);
});

Deno.test("indexIn() reads the number behind the first underscores", () => {
  const cases: readonly (readonly [string, number | undefined])[] = [
    ...[["INPUT__0", 0], ["a__12", 12], ["__3", 3]] as const,
    ...[["a__b__1", undefined], ["a_1", undefined], ["a__", undefined]] as const,
  ];
  for (const [name, index] of cases) assert.equal(indexIn(name), index, name);
});
