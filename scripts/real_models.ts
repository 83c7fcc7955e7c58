/**
 * Builds a repository of real models out of packages:
 *
 *   deno run -A scripts/real_models.ts DIRECTORY [--language=python] [--only=NAME,NAME]
 */
import { parseArgs } from "node:util";
import { printText } from "../server/cli/print.ts";
import { buildModelRepository, type ModelLanguage } from "./model_repository.ts";
import type { ModelEntry } from "./model_table.ts";
import { REAL_MODELS } from "./real_models_table.ts";

const LANGUAGES: readonly string[] = ["typescript", "python"] satisfies ModelLanguage[];

/** The models named, and those that they call; all when none is named. @throws Error for an unknown name. */
export function selectModels(names: readonly string[]): readonly ModelEntry[] {
  if (names.length === 0) return REAL_MODELS;
  const selected = new Set<ModelEntry>();
  const add = (name: string): void => {
    const model = REAL_MODELS.find((each) => each.name === name);
    if (model === undefined) throw new Error(`There is no model ${name}`);
    selected.add(model);
    model.needs?.forEach(add);
  };
  names.forEach(add);
  return REAL_MODELS.filter((model) => selected.has(model));
}

async function build(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      language: { type: "string", default: "typescript" },
      only: { type: "string", default: "" },
    },
  });
  const [directory] = positionals;
  if (directory === undefined || !LANGUAGES.includes(values.language)) {
    printText(
      "Usage: deno run -A scripts/real_models.ts DIRECTORY [--language=python] [--only=NAME,…]\n",
    );
    return 2;
  }
  const models = selectModels(values.only.split(",").filter((name) => name !== ""));
  const complete = await buildModelRepository({
    models,
    directory,
    language: values.language as ModelLanguage,
    print: (line) => printText(line + "\n"),
  });
  printText(`${complete.length} of ${models.length} models are in ${directory}\n`);
  return complete.length === models.length ? 0 : 1;
}

if (import.meta.main) Deno.exit(await build(Deno.args));
