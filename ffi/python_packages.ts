import { dirname, join } from "node:path";

/** Folders below which versions of Python keep their packages, behind those of the Python in use. */
const SYSTEM_PREFIXES = ["/usr/local", "/usr", "/opt/conda"];

/**
 * Folders with Python packages, those of the Python in use first: of `VIRTUAL_ENV` and `CONDA_PREFIX`, of the first
 * `python3` in `PATH`, of the user, of the system. No Python is started. Folders that do not exist are left out.
 */
export function pythonPackageFolders(
  environment: (name: string) => string | undefined = readEnvironment,
): string[] {
  const prefixes = [environment("VIRTUAL_ENV"), environment("CONDA_PREFIX")];
  for (const folder of (environment("PATH") ?? "").split(":")) {
    if (folder !== "" && isThere(join(folder, "python3"))) prefixes.push(dirname(folder));
  }
  const home = environment("HOME");
  if (home !== undefined && home !== "") prefixes.push(join(home, ".local"));
  const folders = new Set<string>();
  for (const prefix of [...prefixes, ...SYSTEM_PREFIXES]) {
    if (prefix === undefined || prefix === "") continue;
    for (const folder of packageFolders(join(prefix, "lib"))) folders.add(folder);
  }
  return [...folders];
}

function packageFolders(library: string): string[] {
  const versions = listFolder(library).filter((name) => /^python3(?:\.\d+)?$/.test(name));
  return versions.sort().reverse().flatMap((version) =>
    ["site-packages", "dist-packages"].map((name) => join(library, version, name)).filter(isThere)
  );
}

/** Names in a folder, in order; none when it cannot be read. */
export function listFolder(path: string): string[] {
  try {
    return [...Deno.readDirSync(path)].map(({ name }) => name).sort();
  } catch {
    return [];
  }
}

function isThere(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}

function readEnvironment(name: string): string | undefined {
  try {
    return Deno.env.get(name);
  } catch {
    return undefined;
  }
}
