import { findVersions, isModelFolder } from "./model_repository_versions.ts";
import { type DirectoryEntry, readDirectory } from "./model_repository_files.ts";

/** Deeper folders of a model are not looked at; a link may lead back up. */
const DEPTH_MAX = 8;
/** What editors, copy programs and Python leave beside the files of a model. */
const NOISE = /^\.|~$|^#.*#$|\.(?:tmp|temp|swp|swo|swx|part|partial|crdownload|bak|pyc)$|^4913$/i;
const CACHE_FOLDER = "__pycache__";
const CONFIG = /^(?:config\.pbtxt|configs)$/;
const CONFIG_BYTES_MAX = 1024 * 1024;

/** The files of a model in texts that differ whenever some of them were added, removed or written. */
export interface ModelFiles {
  /** Of each version folder. */
  readonly versions: ReadonlyMap<number, string>;
  /** Of everything else but the configuration. */
  readonly others: string;
  /** Of the configuration. */
  readonly config: string;
}

/**
 * A text that differs whenever a file below `directory` was added, removed or written; undefined when that cannot be
 * told.
 */
export async function directoryStamp(directory: string): Promise<string | undefined> {
  try {
    const lines: string[] = [];
    await addEntries(directory, lines, { depth: 0, isExact: true });
    return lines.join("\n");
  } catch {
    return undefined;
  }
}

/**
 * Looks at the files of a model, without those that editors and other programs leave there. With `isRelated` also
 * without folders that are none of the model's, unless its configuration names a file in them.
 * @throws what Deno throws.
 */
export async function readModelFiles(
  directory: string,
  { isRelated }: { readonly isRelated: boolean },
): Promise<ModelFiles> {
  const entries = (await readDirectory(directory)).filter(({ name }) => !isNoise(name));
  const versions = new Map<number, string>();
  const others: string[] = [];
  const config: string[] = [];
  const known = new Set(findVersions(entries).versions.map(String));
  const named = isRelated ? await configText(directory, entries) : "";
  for (const entry of entries) {
    const { name, isDirectory } = entry;
    const lines: string[] = [];
    const isVersion = isDirectory && known.has(name);
    const isForeign = isDirectory && !isVersion && !isModelFolder(name);
    if (isRelated && isForeign && !named.includes(`"${name}/`)) continue;
    await addEntry(directory, entry, lines, { depth: 0, isExact: false });
    if (isVersion) versions.set(Number(name), lines.join("\n"));
    else if (CONFIG.test(name)) config.push(...lines);
    else others.push(...lines);
  }
  return { versions, others: others.join("\n"), config: config.join("\n") };
}

/** All of it in one text. */
export function filesStamp({ versions, others, config }: ModelFiles): string {
  return [...[...versions].map(([version, text]) => `${version}\n${text}`), others, config].join(
    "\n\n",
  );
}

interface EntryOptions {
  readonly depth: number;
  /** Also what is noise, and the times of folders. */
  readonly isExact: boolean;
}

async function addEntries(
  directory: string,
  lines: string[],
  options: EntryOptions,
): Promise<void> {
  for (const entry of await readDirectory(directory)) {
    if (!options.isExact && isNoise(entry.name)) continue;
    await addEntry(directory, entry, lines, options);
  }
}

async function addEntry(
  directory: string,
  { name, isDirectory }: DirectoryEntry,
  lines: string[],
  { depth, isExact }: EntryOptions,
): Promise<void> {
  const path = `${directory}/${name}`;
  const info = await statOf(path);
  // A link that leads nowhere, or a file that goes right now.
  if (info === undefined) {
    lines.push(`${path} missing`);
    return;
  }
  const { size, ino, mtime, ctime } = info;
  // Whatever comes and goes in a folder changes its time: it is told by the entries.
  if (isDirectory && !isExact) lines.push(`${path}/`);
  else lines.push([path, size, ino, mtime?.getTime(), ctime?.getTime()].join(" "));
  if (isDirectory && depth < DEPTH_MAX) {
    try {
      await addEntries(path, lines, { depth: depth + 1, isExact });
    } catch (reason) {
      // A folder that goes right now.
      if (!(reason instanceof Deno.errors.NotFound)) throw reason;
      lines.push(`${path} missing`);
    }
  }
}

async function statOf(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (reason) {
    if (reason instanceof Deno.errors.NotFound) return undefined;
    throw reason;
  }
}

function isNoise(name: string): boolean {
  return NOISE.test(name) || name === CACHE_FOLDER;
}

/** The configuration as text, read only when there is a folder that it may have to explain. */
async function configText(directory: string, entries: readonly DirectoryEntry[]): Promise<string> {
  const { ignored } = findVersions(entries);
  if (ignored.length === 0) return "";
  const names = entries.filter(({ name }) => name === "config.pbtxt").map(({ name }) => name);
  if (entries.some(({ name, isDirectory }) => name === "configs" && isDirectory)) {
    for (const { name } of await readDirectory(`${directory}/configs`)) {
      if (name.endsWith(".pbtxt")) names.push(`configs/${name}`);
    }
  }
  const texts = await Promise.all(names.map((name) => readText(`${directory}/${name}`)));
  return texts.join("\n");
}

async function readText(path: string): Promise<string> {
  const { isFile, size } = await Deno.stat(path);
  return isFile && size <= CONFIG_BYTES_MAX ? await Deno.readTextFile(path) : "";
}
