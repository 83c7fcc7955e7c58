import { basename, join } from "node:path";
import { ServerError } from "../../proto/status.ts";
import type { ModelSource } from "../backend.ts";

const DEFAULT_FILENAME = "model.onnx";

/**
 * Path of the model's file. A folder of that name holds the file inside, under the same name or as `model.onnx`.
 * @throws ServerError UNAVAILABLE when there is no such file, INVALID_ARG when the name leaves the version folder.
 */
export async function findModelFile(source: ModelSource): Promise<string> {
  const filename = source.config.defaultModelFilename || DEFAULT_FILENAME;
  if (filename.split(/[\\/]/).includes("..")) {
    throw new ServerError(
      "INVALID_ARG",
      `default_model_filename '${filename}' of model '${source.name}' must not contain '..'`,
    );
  }
  const path = join(source.versionDirectory, filename);
  const kind = await fileKind(path);
  if (kind === "file") return path;
  if (kind === "directory") {
    for (const inner of new Set([basename(filename), DEFAULT_FILENAME])) {
      const innerPath = join(path, inner);
      if (await fileKind(innerPath) === "file") return innerPath;
    }
    throw missing(join(path, basename(filename)), source.name);
  }
  throw missing(path, source.name);
}

function missing(path: string, model: string): ServerError {
  return new ServerError("UNAVAILABLE", `unable to find '${path}' for model instance '${model}'`);
}

async function fileKind(path: string): Promise<"file" | "directory" | "none"> {
  try {
    const stat = await Deno.stat(path);
    return stat.isDirectory ? "directory" : "file";
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) {
      return "none";
    }
    throw ServerError.from(error, "UNAVAILABLE");
  }
}
