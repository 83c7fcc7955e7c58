import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { LibraryAttempt, LibraryCandidate } from "../library.ts";

const ENVIRONMENT_VARIABLES = ["NEREID_ONNXRUNTIME_LIBRARY", "ORT_DYLIB_PATH"];
const NPM_PACKAGE = "onnxruntime-node";

/** File names of the library, most specific first. */
const FILE_NAMES: Readonly<Record<string, readonly string[]>> = {
  linux: ["libonnxruntime.so.1", "libonnxruntime.so"],
  darwin: ["libonnxruntime.1.dylib", "libonnxruntime.dylib"],
  windows: ["onnxruntime.dll"],
};

/** Where to look for the library, in order, and the places that offer nothing. */
export interface OrtLibraryPlaces {
  readonly candidates: readonly LibraryCandidate[];
  readonly attempts: readonly LibraryAttempt[];
}

/**
 * The order: the configured path (which, when given, is the only one), environment, beside the executable, the npm
 * package `onnxruntime-node` (its library file only), the system's loader.
 */
export function locateOrtLibrary(configuredPath: string | undefined): OrtLibraryPlaces {
  if (configuredPath !== undefined && configuredPath !== "") {
    return {
      candidates: [{ origin: "--backend-config=onnxruntime,library", path: configuredPath }],
      attempts: [],
    };
  }
  const candidates: LibraryCandidate[] = [];
  const attempts: LibraryAttempt[] = [];
  const miss = (origin: string, reason: string, path = "") =>
    attempts.push({ origin, path, reason });
  for (const variable of ENVIRONMENT_VARIABLES) {
    const origin = `environment variable ${variable}`;
    const path = readEnvironment(variable);
    if (path === undefined || path === "") miss(origin, "not set");
    else candidates.push({ origin, path });
  }
  const names = FILE_NAMES[Deno.build.os] ?? FILE_NAMES["linux"] ?? [];
  addExisting(dirname(Deno.execPath()), "beside the executable");
  const packageDirectory = findNpmPackage();
  if (packageDirectory === undefined) {
    miss(
      `npm package ${NPM_PACKAGE}`,
      "not installed; 'deno install' in the server's folder does it",
    );
  } else addExisting(npmLibraryDirectory(packageDirectory), `npm package ${NPM_PACKAGE}`);
  for (const name of names) candidates.push({ origin: "system library", path: name });
  return { candidates, attempts };

  function addExisting(directory: string, origin: string): void {
    const found = names.map((name) => join(directory, name)).filter(isFile);
    for (const path of found) candidates.push({ origin, path });
    if (found.length === 0) miss(origin, `no ${names.join(" or ")}`, directory);
  }
}

function readEnvironment(name: string): string | undefined {
  try {
    return Deno.env.get(name);
  } catch {
    return undefined;
  }
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** Folder of the package, found by module resolution from here and by a walk up from the working directory. */
function findNpmPackage(): string | undefined {
  try {
    const require = createRequire(import.meta.url);
    return dirname(require.resolve(`${NPM_PACKAGE}/package.json`));
  } catch {
    // Not resolvable from this module: it may have been loaded from elsewhere than the project's folder.
  }
  let directory = Deno.cwd();
  while (true) {
    const candidate = join(directory, "node_modules", NPM_PACKAGE);
    if (isFile(join(candidate, "package.json"))) return candidate;
    const parent = dirname(directory);
    if (parent === directory) return undefined;
    directory = parent;
  }
}

/** The folder with this machine's binaries; the package names it after the N-API version it was built for. */
function npmLibraryDirectory(packageDirectory: string): string {
  const bin = join(packageDirectory, "bin");
  const platform = Deno.build.os === "windows" ? "win32" : Deno.build.os;
  const architecture = Deno.build.arch === "aarch64" ? "arm64" : "x64";
  let napiDirectory = "napi-v6";
  try {
    const names = [...Deno.readDirSync(bin)].map((entry) => entry.name).sort();
    napiDirectory = names.findLast((name) => name.startsWith("napi-")) ?? napiDirectory;
  } catch {
    // A package without binaries: the attempt is reported with this folder.
  }
  return join(bin, napiDirectory, platform, architecture);
}
