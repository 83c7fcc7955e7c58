import { join } from "node:path";
import type { LibraryAttempt, LibraryCandidate } from "./library.ts";
import { pythonPackageFolders } from "./python_packages.ts";

/** A library that a Python package brings, and where else it may be. */
export interface PackageLibrary {
  /** The backend whose setting `library` names it. */
  readonly backend: string;
  /** The environment variable that names it. */
  readonly variable: string;
  readonly packageName: string;
  /** What installs the package. */
  readonly install: string;
  /** Where the package has it, from the folder of all packages on. */
  readonly packageFolder: string;
  /** Where else it is below a folder that was named. */
  readonly otherFolders?: readonly string[];
  /** Names by which the system's loader may know it, best first. */
  readonly systemNames: readonly string[];
  /** Paths of the libraries in a folder, best first. */
  readonly filesIn: (folder: string) => readonly string[];
}

/** Where to look for a library, in order, and the places that offer nothing. */
export interface LibraryPlaces {
  readonly candidates: readonly LibraryCandidate[];
  readonly attempts: readonly LibraryAttempt[];
}

/**
 * The order: the configured path (which, when given, is the only one), the environment variable, the Python package (its
 * library files only), the system's loader. A folder stands for the library in it.
 */
export function locatePackageLibrary(
  library: PackageLibrary,
  configuredPath: string | undefined,
): LibraryPlaces {
  const { backend, variable, packageName, packageFolder, install } = library;
  if (configuredPath !== undefined && configuredPath !== "") {
    const origin = `--backend-config=${backend},library`;
    return { candidates: [{ origin, path: libraryIn(library, configuredPath) }], attempts: [] };
  }
  const candidates: LibraryCandidate[] = [];
  const attempts: LibraryAttempt[] = [];
  const named = Deno.env.get(variable) ?? "";
  const variableOrigin = `environment variable ${variable}`;
  if (named === "") attempts.push({ origin: variableOrigin, path: "", reason: "not set" });
  else candidates.push({ origin: variableOrigin, path: libraryIn(library, named) });
  const origin = `Python package ${packageName}`;
  const found = pythonPackageFolders().flatMap((folder) =>
    library.filesIn(join(folder, packageFolder))
  );
  candidates.push(...found.map((path) => ({ origin, path })));
  if (found.length === 0) {
    attempts.push({ origin, path: "", reason: `not installed; '${install}' does it` });
  }
  candidates.push(...library.systemNames.map((path) => ({ origin: "system library", path })));
  return { candidates, attempts };
}

function libraryIn(library: PackageLibrary, path: string): string {
  for (const inner of ["", library.packageFolder, ...library.otherFolders ?? []]) {
    const [file] = library.filesIn(join(path, inner));
    if (file !== undefined) return file;
  }
  return path;
}
