import { join } from "node:path";
import { type LibraryPlaces, locatePackageLibrary } from "../package_library.ts";
import { listFolder } from "../python_packages.ts";

/** Of the Python package and of the archive for C programs; both depend on `libtensorflow_framework.so.2`. */
const FILE_NAMES = ["libtensorflow_cc.so.2", "libtensorflow.so.2"];

/** Where TensorFlow's library may be. */
export function locateTfLibrary(configuredPath: string | undefined): LibraryPlaces {
  return locatePackageLibrary({
    backend: "tensorflow",
    variable: "NEREID_TENSORFLOW_LIBRARY",
    packageName: "tensorflow",
    install: "pip install tensorflow-cpu",
    packageFolder: "tensorflow",
    otherFolders: ["lib"],
    systemNames: FILE_NAMES.toReversed(),
    filesIn: libraryFiles,
  }, configuredPath);
}

function libraryFiles(folder: string): string[] {
  const names = listFolder(folder);
  return FILE_NAMES.filter((name) => names.includes(name)).map((name) => join(folder, name));
}
