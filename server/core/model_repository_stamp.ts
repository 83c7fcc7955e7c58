import { readDirectory } from "./model_repository_files.ts";

/** Deeper folders of a model are not looked at; a link may lead back up. */
const DEPTH_MAX = 8;

/**
 * A text that differs whenever a file below `directory` was added, removed or written; undefined when that cannot be
 * told.
 */
export async function directoryStamp(directory: string): Promise<string | undefined> {
  try {
    const lines: string[] = [];
    await addEntries(directory, lines, 0);
    return lines.join("\n");
  } catch {
    return undefined;
  }
}

async function addEntries(directory: string, lines: string[], depth: number): Promise<void> {
  for (const { name, isDirectory } of await readDirectory(directory)) {
    const path = `${directory}/${name}`;
    const { size, ino, mtime, ctime } = await Deno.stat(path);
    lines.push([path, size, ino, mtime?.getTime(), ctime?.getTime()].join(" "));
    if (isDirectory && depth < DEPTH_MAX) await addEntries(path, lines, depth + 1);
  }
}
