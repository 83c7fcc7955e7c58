import { join } from "node:path";
import type { LibraryAttempt, LibraryCandidate } from "../library.ts";
import { listFolder, pythonPackageFolders } from "../python_packages.ts";

const VARIABLE = "NEREID_TENSORFLOW_LIBRARY";
/** Of the Python package and of the archive for C programs; both depend on `libtensorflow_framework.so.2`. */
const FILE_NAMES = ["libtensorflow_cc.so.2", "libtensorflow.so.2"];
const PACKAGE_FOLDER = "tensorflow";

/** Where to look for the library, in order, and the places that offer nothing. */
export interface TfLibraryPlaces {
  readonly candidates: readonly LibraryCandidate[];
  readonly attempts: readonly LibraryAttempt[];
}

/**
 * The order: the configured path (which, when given, is the only one), the environment variable, the Python package
 * `tensorflow` (its library files only), the system's loader. A folder stands for the library in it.
 */
export function locateTfLibrary(configuredPath: string | undefined): TfLibraryPlaces {
  if (configuredPath !== undefined && configuredPath !== "") {
    const origin = "--backend-config=tensorflow,library";
    return { candidates: [{ origin, path: libraryIn(configuredPath) }], attempts: [] };
  }
  const candidates: LibraryCandidate[] = [];
  const attempts: LibraryAttempt[] = [];
  const variable = Deno.env.get(VARIABLE);
  const variableOrigin = `environment variable ${VARIABLE}`;
  if (variable === undefined || variable === "") {
    attempts.push({ origin: variableOrigin, path: "", reason: "not set" });
  } else candidates.push({ origin: variableOrigin, path: libraryIn(variable) });
  const origin = "Python package tensorflow";
  const found = pythonPackageFolders().flatMap((folder) =>
    libraryFiles(join(folder, PACKAGE_FOLDER))
  );
  candidates.push(...found.map((path) => ({ origin, path })));
  if (found.length === 0) {
    attempts.push({
      origin,
      path: "",
      reason: "not installed; 'pip install tensorflow-cpu' does it",
    });
  }
  candidates.push(...FILE_NAMES.toReversed().map((path) => ({ origin: "system library", path })));
  return { candidates, attempts };
}

function libraryFiles(folder: string): string[] {
  const names = listFolder(folder);
  return FILE_NAMES.filter((name) => names.includes(name)).map((name) => join(folder, name));
}

function libraryIn(path: string): string {
  for (const inner of ["", PACKAGE_FOLDER, "lib"]) {
    const [file] = libraryFiles(join(path, inner));
    if (file !== undefined) return file;
  }
  return path;
}
