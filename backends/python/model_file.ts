import { basename } from "node:path";
import { ServerError } from "../../proto/status.ts";
import type { ModelSource } from "../backend.ts";

const DEFAULT_FILE = "model.py";
/** A shell would see more in them than a name. */
const SPECIAL_CHARACTERS = /[;|&$`<>()[\]{}\\"'*?~#!]/;

/** The file of a Python model, and the name that it is imported by. */
export interface PythonFile {
  readonly path: string;
  readonly module: string;
}

/**
 * Finds the file of a model.
 * @param shared absolute path of the file of all models of a backend that is made of Python.
 * @throws ServerError when it is not there, or is no Python file.
 */
export async function findPythonFile(source: ModelSource, shared?: string): Promise<PythonFile> {
  const name = source.config.defaultModelFilename || DEFAULT_FILE;
  const path = shared ?? `${source.versionDirectory}/${name}`;
  if (!path.endsWith(".py")) {
    throw new ServerError(
      "INTERNAL",
      `Failed to preinitialize Python stub: Model name must end with '.py'. Model name is "${name}"`,
    );
  }
  const isFile = await Deno.stat(path).then((stat) => stat.isFile, () => false);
  if (!isFile) {
    throw new ServerError(
      "INTERNAL",
      `Failed to preinitialize Python stub: Python model file not found in '${path}'`,
    );
  }
  const stem = basename(path).slice(0, -".py".length);
  // Only a model's own file lies in a folder of its version.
  return { path, module: shared === undefined ? `${source.version}.${stem}` : stem };
}

/** @throws ServerError INVALID_ARG for a name that a process may not have (python-backend.md §A1). */
export function checkInstanceName(name: string): void {
  if (!SPECIAL_CHARACTERS.test(name)) return;
  throw new ServerError(
    "INVALID_ARG",
    `Invalid stub name: contains invalid characters: '${name}'`,
  );
}

/** Whether a compiled stub lies beside the model, as the reference takes one for other versions of Python. */
export async function hasCompiledStub({ modelDirectory }: ModelSource): Promise<boolean> {
  return await Deno.stat(`${modelDirectory}/triton_python_backend_stub`).then(
    () => true,
    () => false,
  );
}
