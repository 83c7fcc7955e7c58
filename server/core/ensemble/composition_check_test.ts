import assert from "node:assert/strict";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  DataType,
  ModelConfigSchema,
  ModelResponseCacheSchema,
} from "../../../proto/gen/model_config_pb.ts";
import { checkComposition, type ComposingModel } from "./composition_check.ts";
import { ensembleConfig, type StepDescription } from "./ensemble_fixture.ts";

type Tensor = readonly [name: string, dims: readonly number[], more?: object];

function model(
  name: string,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
  change: MessageInitShape<typeof ModelConfigSchema> = {},
): ComposingModel {
  const tensor = ([tensorName, dims, more]: Tensor) => ({
    name: tensorName,
    dataType: DataType.TYPE_UINT8,
    dims: dims.map(BigInt),
    ...more,
  });
  return {
    config: create(ModelConfigSchema, {
      input: inputs.map(tensor),
      output: outputs.map(tensor),
      ...change,
      name,
    }),
  };
}

function check(
  steps: readonly StepDescription[],
  models: Readonly<Record<string, ComposingModel>>,
  change: Parameters<typeof ensembleConfig>[1] = {},
) {
  const ensemble = create(ModelConfigSchema, { ...ensembleConfig(steps, change), name: "e" });
  return checkComposition(ensemble, {
    find: ({ modelName }) => models[modelName] ?? { isUnknown: true },
    modelNames: Object.keys(models),
  });
}

const ONE_STEP: StepDescription[] = [["a", { IN: "X" }, { OUT: "Y" }]];
const PLAIN = model("a", [["IN", [1]]], [["OUT", [1]]]);

Deno.test("checkComposition() finds nothing wrong with what fits", () => {
  assert.deepEqual(check(ONE_STEP, { a: PLAIN }), []);
  const optional = model("a", [["IN", [1]], ["MORE", [4], { optional: true }]], [["OUT", [1]]]);
  assert.deepEqual(check(ONE_STEP, { a: optional }), []);
});

Deno.test("checkComposition() reports every fault at once, with step, model, tensor and what was meant (D5)", () => {
  const issues = check(
    [["m", { A: "X" }, { OUTPUT: "Y" }], ["gost", { IN: "X" }, { OUT: "Z" }]],
    { m: model("m", [["A", [1]], ["B", [1]]], [["OUTPUT0", [1]]]), ghost: PLAIN },
    { outputs: ["Y", "Z"] },
  );
  assert.deepEqual(issues.map(({ path, message, hint }) => [path, message, hint]), [
    [
      "ensemble_scheduling.step[1]",
      "ensemble e contains models that are not available or ambiguous: gost",
      "step 1 names 'gost', did you mean 'ghost'?",
    ],
    [
      "ensemble_scheduling.step[0].output_map",
      "in ensemble e, ensemble tensor Y is mapped from non-existing output OUTPUT in model m",
      "did you mean 'OUTPUT0'?",
    ],
    [
      "ensemble_scheduling.step[0].input_map",
      "in ensemble e, input B in model m is not mapped to any ensemble tensors",
      "step 0 must map it, or the model must declare it optional",
    ],
  ]);
});

Deno.test("checkComposition() names models without a version that can be used", () => {
  const reason = "whose required version 7 is not loaded.";
  assert.equal(
    check(ONE_STEP, { a: { reason } })[0]!.message,
    `ensemble 'e' depends on 'a' ${reason}`,
  );
});

Deno.test("checkComposition() names inputs that do not exist, and those there are", () => {
  const [issue] = check([["a", { WRONG: "X", IN: "X" }, { OUT: "Y" }]], { a: PLAIN });
  assert.equal(
    issue!.message,
    "in ensemble e, ensemble tensor X is mapping to non-existing input WRONG in model a",
  );
  assert.equal(issue!.hint, "the model has the inputs IN");
});

Deno.test("checkComposition() compares batch sizes", () => {
  const batched = model("a", [["IN", [1]]], [["OUT", [1]]], { maxBatchSize: 2 });
  assert.deepEqual(check(ONE_STEP, { a: batched }, { maxBatchSize: 2 }), []);
  const [issue] = check(ONE_STEP, { a: batched }, { maxBatchSize: 4 });
  assert.equal(
    issue!.message,
    "ensemble e allows maximum batch size 4, but it contains model a which only allows maximum " +
      "batch size to be 2",
  );
  assert.match(
    issue!.hint!,
    /^write max_batch_size: 4 into the config\.pbtxt of a .* 2 into that of e$/,
  );
});

Deno.test("checkComposition() compares types and shapes of all who know a tensor", () => {
  const types = model("a", [["IN", [1], { dataType: DataType.TYPE_FP32 }]], [["OUT", [1]]]);
  assert.match(
    check(ONE_STEP, { a: types })[0]!.message,
    /tensor X: inconsistent data type: TYPE_UINT8 is inferred from model e while TYPE_FP32 is inferred from model a$/,
  );
  const shapes = model("a", [["IN", [5]]], [["OUT", [1]]], { maxBatchSize: 8 });
  assert.match(
    check(ONE_STEP, { a: shapes }, { maxBatchSize: 4 })[0]!.message,
    /tensor X: inconsistent shape: \[-1,1\] is inferred from model e while \[-1,5\] is inferred from model a$/,
  );
});

Deno.test("checkComposition() lets shapes differ by the batch dimension and free dimensions", () => {
  const batched = model("a", [["IN", [4]]], [["OUT", [4]]], { maxBatchSize: 8 });
  for (const dims of [[4], [-1], [3, 4], [-1, 4]]) {
    assert.deepEqual(check(ONE_STEP, { a: batched }, { dims }), []);
  }
  assert.equal(check(ONE_STEP, { a: batched }, { dims: [4, 4, 4] }).length, 2);
});

Deno.test("checkComposition() looks at dims, not at reshape, and says so (D6)", () => {
  const reshape = { reshape: { shape: [2n, 2n] } };
  const steps: StepDescription[] = [["pre", { IN: "X" }, { OUT: "m" }], ["a", { IN: "m" }, {
    OUT: "Y",
  }]];
  const pre = model("pre", [["IN", [4], reshape]], [["OUT", [4], reshape]]);
  const a = (dims: readonly number[]) => model("a", [["IN", dims]], [["OUT", [4]]]);
  assert.deepEqual(check(steps, { pre, a: a([4]) }, { dims: [4] }), []);
  const [issue] = check(steps, { pre, a: a([2, 2]) }, { dims: [4] });
  assert.match(issue!.message, /tensor m: inconsistent shape: \[4\] .* pre while \[2,2\] .* a$/);
  assert.match(issue!.hint!, /the reshape to \[2,2\] of model pre is inside of that model/);
});

Deno.test("checkComposition() looks at what an ensemble reshapes to, not at its dims", () => {
  const a = (dims: readonly number[]) => model("a", [["IN", dims]], [["OUT", dims]]);
  const checkReshaped = (inner: ComposingModel) =>
    check(ONE_STEP, { a: inner }, { dims: [2, 2], reshape: [4] });
  assert.deepEqual(checkReshaped(a([4])), []);
  assert.deepEqual(checkReshaped(a([-1])), []);
  const [input, output] = checkReshaped(a([2, 2]));
  assert.match(input!.message, /tensor X: inconsistent shape: \[4\] .* e while \[2,2\] .* a$/);
  assert.match(output!.message, /tensor Y: inconsistent shape: \[2,2\] .* a while \[4\] .* e$/);
  assert.match(input!.hint!, /steps of e see the reshape of its input X, clients its dims \[2,2\]/);
});

Deno.test("checkComposition() refuses steps that read from two decoupled ones", () => {
  const decoupled = (name: string) =>
    model(name, [["IN", [1]]], [["OUT", [1]]], { modelTransactionPolicy: { decoupled: true } });
  const models = {
    d1: decoupled("d1"),
    d2: decoupled("d2"),
    a: PLAIN,
    join: model("join", [["L", [1]], ["R", [1]]], [["OUT", [1]]]),
  };
  const issues = check([
    ["join", { L: "l2", R: "r" }, { OUT: "Y" }],
    ["d1", { IN: "X" }, { OUT: "l" }],
    ["a", { IN: "l" }, { OUT: "l2" }],
    ["d2", { IN: "X" }, { OUT: "r" }],
  ], models);
  assert.deepEqual(issues.map(({ path, message, hint }) => [path, message, hint]), [[
    "ensemble_scheduling.step[0]",
    "in ensemble e, step of model 'join' receives inputs originated from different decoupled models",
    "they come from step 1 ('d1') and step 3 ('d2')",
  ]]);
  assert.deepEqual(
    check([
      ["join", { L: "l", R: "l2" }, { OUT: "Y" }],
      ["d1", { IN: "X" }, { OUT: "l" }],
      ["a", { IN: "l" }, { OUT: "l2" }],
    ], models),
    [],
  );
});

Deno.test("checkComposition() refuses a response cache for decoupled steps", () => {
  const change = { modelTransactionPolicy: { decoupled: true } };
  const models = { a: model("a", [["IN", [1]]], [["OUT", [1]]], change) };
  const ensemble = create(ModelConfigSchema, { ...ensembleConfig(ONE_STEP), name: "e" });
  ensemble.responseCache = create(ModelResponseCacheSchema, { enable: true });
  const [issue] = checkComposition(ensemble, {
    find: ({ modelName }) => models[modelName as "a"],
    modelNames: ["a"],
  });
  assert.equal(issue!.path, "response_cache");
  assert.match(issue!.message, /does not currently support model e with 'decoupled'/);
});
