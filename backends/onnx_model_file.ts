import { basename, dirname, join } from "node:path";
import { configError } from "../proto/model_config.ts";
import { typoOf } from "../proto/model_config_hint.ts";
import { ServerError } from "../proto/status.ts";
import type { ModelSource } from "./backend.ts";
import { statPath } from "./stat_path.ts";

const DEFAULT_FILENAME = "model.onnx";

const LFS_POINTER = "version https://git-lfs";

/**
 * Path of the model's file. A folder of that name holds the file inside, under the same name or as `model.onnx`.
 * `backend` opens it when it is no ONNX model; for the error.
 * @throws ServerError UNAVAILABLE when there is no such file, INVALID_ARG when the name leaves the version folder.
 */
export async function findModelFile(source: ModelSource, backend?: string): Promise<string> {
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
    throw await missing(join(path, basename(filename)), source, backend);
  }
  throw await missing(path, source, backend);
}

async function missing(
  path: string,
  source: ModelSource,
  backend: string | undefined,
): Promise<ServerError> {
  // A model of ONNX is of no use to others.
  const other = backend === undefined ? await otherFile(dirname(path)) : undefined;
  const hint = other === undefined ? {} : {
    hint: `there is '${other}': name it '${basename(path)}', or set default_model_filename: ` +
      `"${other}"`,
  };
  // Only beside the file that is wanted the name alone is enough. Whoever names another one may miss that file.
  const isBeside = other !== undefined && dirname(path) === source.versionDirectory &&
    (basename(path) === DEFAULT_FILENAME || typoOf(basename(path), [other]) !== undefined);
  const fields = [{ path: "default_model_filename", value: JSON.stringify(other) }];
  return configError([{
    path: "",
    message: `unable to find '${path}' for model instance '${source.name}'` +
      (backend === undefined ? "" : ` of backend '${backend}'`),
    code: "UNAVAILABLE",
    place: source.versionDirectory.split("/").slice(-2).join("/"),
    ...hint,
    ...(isBeside ? { mend: { fields } } : {}),
  }]);
}

/** The file of someone who kept the name of an exported model, if there is but one. */
async function otherFile(directory: string): Promise<string | undefined> {
  const names: string[] = [];
  try {
    for await (const entry of Deno.readDir(directory)) {
      if (entry.name.toLowerCase().endsWith(".onnx")) names.push(entry.name);
      if (names.length > 1) return undefined;
    }
  } catch {
    return undefined;
  }
  return names[0];
}

/**
 * @throws ServerError UNAVAILABLE for a pipe, a socket or a device, where the runtime could wait for ever, and for a
 * file that may not be read, of which it only tells a number.
 */
async function fileKind(path: string): Promise<"file" | "directory" | "none"> {
  const stat = await statPath(path);
  if (stat === undefined) return "none";
  if (stat.isDirectory) return "directory";
  const refuse = (why: string) =>
    new ServerError("UNAVAILABLE", `unable to load '${path}': ${why}`);
  if (!stat.isFile) throw refuse("it is no regular file");
  try {
    (await Deno.open(path)).close();
  } catch (error) {
    if (error instanceof Deno.errors.PermissionDenied) throw refuse("Permission denied");
  }
  return "file";
}

/** What a person can see about a file that the runtime cannot read; "" = nothing. */
export async function brokenFileHint(path: string): Promise<string> {
  try {
    using file = await Deno.open(path);
    const { size } = await file.stat();
    if (size === 0) return "; the file is empty";
    const start = new Uint8Array(LFS_POINTER.length);
    await file.read(start);
    if (new TextDecoder().decode(start) === LFS_POINTER) {
      return "; the file is a pointer of Git LFS: 'git lfs pull' fetches the model";
    }
    return `; the file of ${size} bytes is not an ONNX model, or it is cut off`;
  } catch {
    return "";
  }
}
