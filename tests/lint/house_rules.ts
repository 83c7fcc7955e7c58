import { fenceRules } from "./fence_rules.ts";
import { layerRule } from "./layer_rule.ts";
import { sizeRules } from "./size_rules.ts";
import { wordRules } from "./word_rules.ts";

/** The house rules of this project as a plugin of `deno lint`; README has them in words. */
const plugin: Deno.lint.Plugin = {
  name: "house",
  rules: { layers: layerRule, ...sizeRules, ...fenceRules, ...wordRules },
};

// The one default export: `deno lint` takes a plugin from nowhere else.
// deno-lint-ignore house/no-default-export
export default plugin;
