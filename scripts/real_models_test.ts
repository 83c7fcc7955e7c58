import assert from "node:assert/strict";
import { DEMO_MODELS } from "./demo_models.ts";
import { selectModels } from "./real_models.ts";
import { REAL_MODELS } from "./real_models_table.ts";

const names = (models: readonly { readonly name: string }[]) => models.map(({ name }) => name);

Deno.test("selectModels() adds the models that a model calls", () => {
  assert.deepEqual(names(selectModels(["filetype"])), [
    "magika",
    "magika_features",
    "magika_label",
    "filetype",
  ]);
  assert.equal(selectModels([]), REAL_MODELS);
  assert.throws(() => selectModels(["filetype", "none"]), /There is no model none/);
});

for (const [title, models] of [["demo", DEMO_MODELS], ["real", REAL_MODELS]] as const) {
  Deno.test(`the table of ${title} models has unique names, and what they need`, () => {
    const all = new Set(names(models));
    assert.equal(all.size, models.length);
    for (const { needs = [] } of models) {
      for (const need of needs) assert.ok(all.has(need), need);
    }
  });
}
