import { dirname, join } from "node:path";
import { listFolder, pythonPackageFolders } from "../python_packages.ts";

const VARIABLE = "NEREID_TORCH_LIBRARY";
const LIBRARY = "libtorch.so";
const PACKAGE_FOLDER = "torch/lib";
/** Where distributions put libraries. */
const SYSTEM_FOLDERS = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/local/lib",
  "/usr/lib",
];

/** A libtorch that a shim can be built against. */
export interface TorchFolders {
  /** Where `libtorch.so` is. */
  readonly libraries: string;
  /** Where `torch/script.h` is. */
  readonly headers: string;
  /** Contents of the version header, or of what tells libraries apart. */
  readonly stamp: string;
}

/**
 * Finds libtorch with its headers: the configured path (which, when given, is the only one), the environment variable,
 * the Python package `torch`, the system. A path is the library, its folder, or the folder of the unpacked package.
 * @throws Error listing what was tried.
 */
export function locateTorch(configuredPath: string | undefined): TorchFolders {
  const tried: string[] = [];
  for (const { origin, folder } of placesOf(configuredPath, tried)) {
    const libraries = librariesIn(folder);
    if (libraries === undefined) {
      tried.push(`${origin}: '${folder}': no ${LIBRARY}`);
      continue;
    }
    const headers = headersOf(libraries);
    if (headers !== undefined) return { libraries, headers, stamp: stampOf(libraries, headers) };
    tried.push(`${origin}: '${libraries}': no headers (torch/script.h) beside it`);
  }
  throw new Error(
    `Cannot find libtorch; tried: ${tried.join("; ")}. 'pip install torch' or 'apt-get install ` +
      `libtorch-dev' brings it; --backend-config=pytorch,library=PATH names it`,
  );
}

function placesOf(
  configuredPath: string | undefined,
  tried: string[],
): { readonly origin: string; readonly folder: string }[] {
  if (configuredPath !== undefined && configuredPath !== "") {
    return [{ origin: "--backend-config=pytorch,library", folder: configuredPath }];
  }
  const places: { origin: string; folder: string }[] = [];
  const variable = Deno.env.get(VARIABLE);
  if (variable === undefined || variable === "") {
    tried.push(`environment variable ${VARIABLE}: not set`);
  } else places.push({ origin: `environment variable ${VARIABLE}`, folder: variable });
  const packages = pythonPackageFolders().map((folder) => join(folder, PACKAGE_FOLDER))
    .filter((folder) => listFolder(folder).includes(LIBRARY));
  if (packages.length === 0) tried.push("Python package torch: not installed");
  places.push(...packages.map((folder) => ({ origin: "Python package torch", folder })));
  places.push(...SYSTEM_FOLDERS.map((folder) => ({ origin: "system", folder })));
  return places;
}

function librariesIn(path: string): string | undefined {
  const folders = [path, join(path, "lib"), join(path, PACKAGE_FOLDER), dirname(path)];
  return folders.find((folder) => listFolder(folder).includes(LIBRARY));
}

/** Beside the libraries in packages; at the usual place when the system's package manager put them there. */
function headersOf(libraries: string): string | undefined {
  const beside = [join(libraries, "..", "include"), join(libraries, "..", "..", "include")];
  const folders = [...beside, "/usr/include", "/usr/local/include"];
  return folders.find((folder) => listFolder(join(folder, "torch")).includes("script.h"));
}

/** Whether this libtorch comes with what it needs for CUDA devices; it is not opened for that. */
export function hasCudaLibrary({ libraries }: Pick<TorchFolders, "libraries">): boolean {
  return listFolder(libraries).some((name) => /^libtorch_cuda\.so/.test(name));
}

function stampOf(libraries: string, headers: string): string {
  for (const path of ["torch/csrc/api/include/torch/version.h", "torch/headeronly/version.h"]) {
    try {
      return `${libraries}\n${Deno.readTextFileSync(join(headers, path))}`;
    } catch {
      // Another version has it elsewhere.
    }
  }
  const { mtime, size } = Deno.statSync(join(libraries, LIBRARY));
  return `${libraries}\n${mtime?.getTime()} ${size}`;
}
