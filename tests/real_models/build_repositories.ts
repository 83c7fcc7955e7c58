/**
 * Builds what the tests of real models serve and send under DIRECTORY: `typescript` and `python`, the same models with
 * their steps in either language, and `pictures`. The last line has the names of the models that are there, as JSON.
 */
import { join } from "node:path";
import { asFile } from "../../scripts/demo_models.ts";
import { buildModelRepository, type ModelLanguage } from "../../scripts/model_repository.ts";
import type { ModelEntry } from "../../scripts/model_table.ts";
import { PACKAGE_FILES as FILES } from "../../scripts/packages.ts";
import { REAL_MODELS } from "../../scripts/real_models_table.ts";

const PICTURES: ModelEntry = {
  name: "pictures",
  texts: "",
  files: [
    asFile(FILES.pagePicture, "page.png"),
    asFile(FILES.catPicture, "chelsea.png"),
    asFile(FILES.coffeePicture, "coffee.png"),
    asFile(FILES.rocketPicture, "rocket.jpg"),
  ],
};

async function build(directory: string): Promise<void> {
  const complete = new Set<string>();
  const add = async (folder: string, models: readonly ModelEntry[], language: ModelLanguage) => {
    const names = await buildModelRepository({
      models,
      directory: join(directory, folder),
      language,
      print: console.log,
    });
    for (const name of names) complete.add(name);
  };
  // The first call fetches everything.
  await add("typescript", REAL_MODELS, "typescript");
  await add("python", REAL_MODELS, "python");
  await add("", [PICTURES], "typescript");
  console.log(JSON.stringify([...complete]));
}

if (import.meta.main) await build(Deno.args[0]!);
