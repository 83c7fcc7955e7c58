import { join } from "node:path";
import { ServerError } from "../../proto/status.ts";
import type { ModelSource } from "../backend.ts";

/**
 * Names of the operations that a JSON file `{"init_ops": [...]}` lists; the file is looked for in the folder of the
 * version, then of the model. None without a file name.
 * @throws ServerError UNAVAILABLE when there is no such file, INVALID_ARG for another content.
 */
export async function readInitOps(
  { name, versionDirectory, modelDirectory }: ModelSource,
  file: string,
): Promise<readonly string[]> {
  if (file === "") return [];
  for (const folder of [versionDirectory, modelDirectory]) {
    const path = join(folder, file);
    const text = await readText(path);
    if (text !== undefined) return parse(text, path);
  }
  throw new ServerError(
    "UNAVAILABLE",
    `unable to find '${file}' (parameter 'TF_INIT_OPS_FILE') of model '${name}' in ` +
      `'${versionDirectory}' or '${modelDirectory}'`,
  );
}

async function readText(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw ServerError.from(error, "UNAVAILABLE");
  }
}

function parse(text: string, path: string): readonly string[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse(path, error instanceof Error ? error.message : String(error));
  }
  const list = (value as { init_ops?: unknown } | null)?.init_ops;
  if (Array.isArray(list) && list.every((each) => typeof each === "string")) return list;
  throw refuse(path, "it has no such list");
}

function refuse(path: string, why: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `'${path}' must be JSON with a list of names, {"init_ops": ["operation", …]}: ${why}`,
  );
}
