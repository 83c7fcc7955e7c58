import { join } from "node:path";
import { type LibraryPlaces, locatePackageLibrary } from "../package_library.ts";
import { listFolder } from "../python_packages.ts";

const FILE_NAME = "libopenvino_c.so";

/** Where OpenVINO's library may be. */
export function locateOvLibrary(configuredPath: string | undefined): LibraryPlaces {
  return locatePackageLibrary({
    backend: "openvino",
    variable: "NEREID_OPENVINO_LIBRARY",
    packageName: "openvino",
    install: "pip install openvino",
    packageFolder: "openvino/libs",
    systemNames: [FILE_NAME],
    filesIn: libraryFiles,
  }, configuredPath);
}

/** Newest first. */
function libraryFiles(folder: string): string[] {
  const names = listFolder(folder).filter((name) => name.startsWith(FILE_NAME));
  return names.reverse().map((name) => join(folder, name));
}
