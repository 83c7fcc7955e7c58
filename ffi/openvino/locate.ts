import { join } from "node:path";
import type { LibraryAttempt, LibraryCandidate } from "../library.ts";
import { listFolder, pythonPackageFolders } from "../python_packages.ts";

const VARIABLE = "NEREID_OPENVINO_LIBRARY";
const FILE_NAME = "libopenvino_c.so";
const PACKAGE_FOLDER = "openvino/libs";

/** Where to look for the library, in order, and the places that offer nothing. */
export interface OvLibraryPlaces {
  readonly candidates: readonly LibraryCandidate[];
  readonly attempts: readonly LibraryAttempt[];
}

/**
 * The order: the configured path (which, when given, is the only one), the environment variable, the Python package
 * `openvino` (its library files only), the system's loader. A folder stands for the library in it.
 */
export function locateOvLibrary(configuredPath: string | undefined): OvLibraryPlaces {
  if (configuredPath !== undefined && configuredPath !== "") {
    const origin = "--backend-config=openvino,library";
    return { candidates: [{ origin, path: libraryIn(configuredPath) }], attempts: [] };
  }
  const candidates: LibraryCandidate[] = [];
  const attempts: LibraryAttempt[] = [];
  const variable = Deno.env.get(VARIABLE);
  const variableOrigin = `environment variable ${VARIABLE}`;
  if (variable === undefined || variable === "") {
    attempts.push({ origin: variableOrigin, path: "", reason: "not set" });
  } else candidates.push({ origin: variableOrigin, path: libraryIn(variable) });
  const origin = "Python package openvino";
  const found = pythonPackageFolders().flatMap((folder) =>
    libraryFiles(join(folder, PACKAGE_FOLDER))
  );
  candidates.push(...found.map((path) => ({ origin, path })));
  if (found.length === 0) {
    attempts.push({ origin, path: "", reason: "not installed; 'pip install openvino' does it" });
  }
  candidates.push({ origin: "system library", path: FILE_NAME });
  return { candidates, attempts };
}

/** Newest first. */
function libraryFiles(folder: string): string[] {
  const names = listFolder(folder).filter((name) => name.startsWith(FILE_NAME));
  return names.reverse().map((name) => join(folder, name));
}

function libraryIn(path: string): string {
  return libraryFiles(path)[0] ?? libraryFiles(join(path, PACKAGE_FOLDER))[0] ?? path;
}
