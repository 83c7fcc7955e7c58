import { DUPLICATE_MODEL_REASON } from "./model_repository.ts";
import { readDirectory, reasonText } from "./model_repository_files.ts";
import { filesStamp, readModelFiles } from "./model_repository_stamp.ts";

/** A model in a look at the repositories. */
export interface ModelLook {
  /** Repositories that have it. */
  readonly repositories: readonly string[];
  /** Differs whenever its files do; undefined = they cannot be read, for the reason. */
  readonly stamp: string | undefined;
  readonly reason: string;
}

/** What the repositories hold at some moment. */
export interface RepositoryLook {
  /** By what the models are kept under. */
  readonly models: ReadonlyMap<string, ModelLook>;
  /** Repositories that cannot be listed, and why. */
  readonly lost: ReadonlyMap<string, string>;
}

/** True for folders of version control, editors and notebooks: `.git`, `.ipynb_checkpoints` and such. */
export function isHidden(name: string): boolean {
  return name.startsWith(".");
}

/** True for a model that several repositories have. */
export function isDuplicate({ repositories }: ModelLook): boolean {
  return repositories.length > 1;
}

/** Looks at every model of every repository; `idOf` tells what a model is kept under. */
export async function lookAtFolders(
  repositories: readonly string[],
  idOf: (repository: string, name: string) => string,
): Promise<RepositoryLook> {
  const models = new Map<string, ModelLook>();
  const lost = new Map<string, string>();
  for (const repository of repositories) {
    let names: readonly string[];
    try {
      const entries = await readDirectory(repository);
      names = entries.filter(({ isDirectory }) => isDirectory).map(({ name }) => name);
    } catch (reason) {
      lost.set(repository, reasonText(reason));
      continue;
    }
    for (const name of names) {
      if (isHidden(name) || isUnfinished(name)) continue;
      const id = idOf(repository, name);
      const before = models.get(id);
      const seen = before === undefined
        ? await lookAtModel(repository, name)
        : addPlace(before, repository);
      if (seen !== undefined) models.set(id, seen);
    }
  }
  return { models, lost };
}

/** Copies in the making: programs write to such a name and rename it when they are done. */
export function isUnfinished(name: string): boolean {
  return /\.(?:tmp|temp|part|partial)$|~$/i.test(name);
}

/** Undefined when the folder went after it was listed. */
async function lookAtModel(repository: string, name: string): Promise<ModelLook | undefined> {
  const repositories = [repository];
  try {
    const files = await readModelFiles(`${repository}/${name}`, { isRelated: true });
    return { repositories, stamp: filesStamp(files), reason: "" };
  } catch (reason) {
    // A name that is no UTF-8 is never found under what it is shown as.
    if (reason instanceof Deno.errors.NotFound && !name.includes("\ufffd")) return undefined;
    return { repositories, stamp: undefined, reason: reasonText(reason) };
  }
}

/** What the files of a model in two places say does not matter, only where they are. */
function addPlace({ repositories }: ModelLook, repository: string): ModelLook {
  const places = [...repositories, repository];
  return {
    repositories: places,
    stamp: [DUPLICATE_MODEL_REASON, ...places].join("\n"),
    reason: "",
  };
}
