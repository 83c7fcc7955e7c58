import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { callSpecNames, resolvePackageNames } from "./call_spec.ts";

interface Node {
  readonly type: string | null;
  readonly context: string | null;
  readonly "children_spec": Node[];
}

const LEAF: Node = { type: null, context: null, "children_spec": [] };
const tuple = (...children: Node[]): Node => ({
  type: "builtins.tuple",
  context: "null",
  "children_spec": children,
});
const dict = (entries: Record<string, Node>): Node => ({
  type: "builtins.dict",
  context: JSON.stringify(Object.keys(entries)),
  "children_spec": Object.values(entries),
});
const spec = (node: Node) => JSON.stringify([1, node]);

const INPUTS = spec(tuple(tuple(LEAF, dict({ a: LEAF, b: tuple(LEAF) })), dict({ scale: LEAF })));
const OUTPUTS = spec(dict({ sum: LEAF, rest: tuple(LEAF, dict({ scaled: LEAF })) }));
const INPUT_NAMES = ["ARGS[0]", "ARGS[1][a]", "ARGS[1][b][0]", "KWARGS[scale]"];

Deno.test("callSpecNames() names tensors by where they are", () => {
  assert.deepEqual(callSpecNames(INPUTS, "input"), INPUT_NAMES);
  assert.deepEqual(callSpecNames(OUTPUTS, "output"), [
    ...["RESULT[sum]", "RESULT[rest][0]", "RESULT[rest][1][scaled]"],
  ]);
  assert.deepEqual(callSpecNames(spec(LEAF), "output"), ["RESULT"]);
});

Deno.test("callSpecNames() refuses what holds no tensors, and what is nested without end", () => {
  const odd = { ...LEAF, type: "my.Class" };
  assert.throws(
    () => callSpecNames(spec(tuple(LEAF, odd)), "output"),
    /'RESULT\[1\]' is my\.Class/,
  );
  let deep = LEAF;
  for (let depth = 0; depth < 40; depth++) deep = tuple(deep);
  assert.throws(() => callSpecNames(spec(deep), "output"), /nested too deep/);
  assert.throws(() => callSpecNames("no JSON", "output"), SyntaxError);
});

const config = (inputs: readonly string[], outputs: readonly string[]) => {
  const row = (name: string) => ({ name, dataType: DataType.TYPE_FP32, dims: [1n] });
  return create(ModelConfigSchema, { name: "m", input: inputs.map(row), output: outputs.map(row) });
};
const signature = { inputSpec: INPUTS, outputSpec: OUTPUTS, device: "cpu" };

Deno.test("resolvePackageNames() finds tensors by number and by place", () => {
  const names = ["KWARGS[scale]", "INPUT__0", "INPUT__2", "ARGS[1][a]"];
  const outputs = ["OUTPUT__2", "RESULT[sum]"];
  const naming = resolvePackageNames(config(names, outputs), signature);
  assert.deepEqual(naming.inputs.map(({ name }) => name), [
    ...["INPUT__0", "ARGS[1][a]", "INPUT__2", "KWARGS[scale]"],
  ]);
  assert.deepEqual([...naming.outputIndices], [["OUTPUT__2", 2], ["RESULT[sum]", 0]]);
});

Deno.test("resolvePackageNames() tells every name that fits nothing", () => {
  const refuse = (inputs: readonly string[], outputs: readonly string[], expected: RegExp) =>
    assert.throws(() => resolvePackageNames(config(inputs, outputs), signature), expected);
  refuse(
    [...INPUT_NAMES, "x"],
    ["RESULT[sum]"],
    /unexpected inference input 'x', allowed .*ARGS\[0\] \(INPUT__0\)/,
  );
  refuse(INPUT_NAMES.slice(1), ["RESULT[sum]"], /configuration expects 3 inputs, model provides 4/);
  refuse(
    [...INPUT_NAMES, "INPUT__0"],
    ["RESULT[sum]"],
    /'ARGS\[0\]' and 'INPUT__0' .* both ARGS\[0\]/,
  );
  refuse(INPUT_NAMES, ["OUTPUT__3"], /unexpected inference output 'OUTPUT__3'/);
});
