import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../../proto/gen/model_config_pb.ts";
import {
  composingModels,
  dependentEnsembles,
  type DependentModel,
  findCircle,
  sortByDependency,
} from "./composing_models.ts";
import { ensembleConfig } from "./ensemble_fixture.ts";

function models(graph: Readonly<Record<string, readonly string[]>>): DependentModel[] {
  return Object.entries(graph).map(([name, parts]) => ({
    name,
    config: create(
      ModelConfigSchema,
      parts.length === 0
        ? {}
        : ensembleConfig(parts.map((part) => [part, { IN: "X" }, { OUT: "Y" }])),
    ),
  }));
}

const names = (found: readonly DependentModel[]) => found.map(({ name }) => name);

Deno.test("composingModels() names each model once", () => {
  const [ensemble, plain] = models({ e: ["a", "b", "a"], m: [] });
  assert.deepEqual(composingModels(ensemble!.config), ["a", "b"]);
  assert.deepEqual(composingModels(plain!.config), []);
});

Deno.test("dependentEnsembles() finds ensembles of ensembles, inner ones first", () => {
  const all = models({ outer: ["inner"], other: ["b"], inner: ["a"], top: ["outer", "inner"] });
  assert.deepEqual(names(dependentEnsembles(["a"], all)), ["inner", "outer", "top"]);
  assert.deepEqual(names(dependentEnsembles(["x"], all)), []);
});

Deno.test("sortByDependency() puts each model behind what it contains, also with circles", () => {
  const sorted = names(sortByDependency(models({ e: ["f", "a"], f: ["b"], a: [], b: [] })));
  assert.ok(sorted.indexOf("f") < sorted.indexOf("e"));
  assert.ok(sorted.indexOf("b") < sorted.indexOf("f"));
  assert.equal(sorted.length, 4);
  assert.equal(sortByDependency(models({ e: ["f"], f: ["e"] })).length, 2);
});

Deno.test("findCircle() finds the way from a model back to itself", () => {
  const circle = (graph: Readonly<Record<string, readonly string[]>>, name: string) => {
    const byName = new Map(models(graph).map((model) => [model.name, model.config]));
    return findCircle(name, (each) => byName.get(each));
  };
  assert.deepEqual(circle({ a: ["b"], b: ["c"], c: ["a"] }, "a"), ["a", "b", "c"]);
  assert.deepEqual(circle({ a: ["a"] }, "a"), ["a"]);
  assert.equal(circle({ a: ["b"], b: ["c"], c: ["b"] }, "a"), undefined);
  assert.equal(circle({ a: ["b", "gone"], b: [] }, "a"), undefined);
});
