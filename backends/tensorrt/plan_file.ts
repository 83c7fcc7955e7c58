import { basename, dirname, join } from "node:path";
import { configError } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import type { ModelSource } from "../backend.ts";
import { statPath } from "../stat_path.ts";

const DEFAULT_FILENAME = "model.plan";
/** What plans of every version begin with. */
const MAGIC = "ftrt";
const LFS_POINTER = "version https://git-lfs";

/**
 * Path of the plan for a GPU of this compute capability (`cc_model_filenames`), else the default one.
 * @throws ServerError UNAVAILABLE when there is no such file, INVALID_ARG when the name leaves the version folder.
 */
export async function findPlanFile(source: ModelSource, capability: string): Promise<string> {
  const { defaultModelFilename, ccModelFilenames } = source.config;
  const filename = ccModelFilenames[capability] || defaultModelFilename || DEFAULT_FILENAME;
  if (filename.split(/[\\/]/).includes("..")) {
    throw new ServerError(
      "INVALID_ARG",
      `file name '${filename}' of model '${source.name}' must not contain '..'`,
    );
  }
  const path = join(source.versionDirectory, filename);
  const stat = await statPath(path);
  if (stat?.isFile) return path;
  if (stat !== undefined) {
    throw new ServerError("UNAVAILABLE", `unable to load '${path}': it is no regular file`);
  }
  const other = await otherPlan(dirname(path));
  throw configError([{
    path: "",
    message: `unable to find '${path}' for model instance '${source.name}'`,
    code: "UNAVAILABLE",
    place: source.versionDirectory.split("/").slice(-2).join("/"),
    ...other === undefined ? {} : {
      hint: `there is '${other}': name it '${basename(path)}', or set default_model_filename: ` +
        `"${other}"`,
    },
  }]);
}

/** The one plan under another name, if there is but one. */
async function otherPlan(directory: string): Promise<string | undefined> {
  const names: string[] = [];
  try {
    for await (const { name } of Deno.readDir(directory)) {
      if (/\.(plan|engine|trt)$/i.test(name)) names.push(name);
      if (names.length > 1) return undefined;
    }
  } catch {
    return undefined;
  }
  return names[0];
}

/**
 * Reads a plan.
 * @throws ServerError INVALID_ARG for a file that is no plan at all, UNAVAILABLE when it cannot be read.
 */
export async function readPlan(path: string): Promise<Uint8Array<ArrayBuffer>> {
  let plan: Uint8Array<ArrayBuffer>;
  try {
    plan = await Deno.readFile(path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ServerError("UNAVAILABLE", `unable to load '${path}': ${reason}`, { cause: error });
  }
  const start = new TextDecoder().decode(plan.subarray(0, LFS_POINTER.length));
  if (start.startsWith(MAGIC)) return plan;
  const why = plan.length === 0
    ? "the file is empty"
    : start === LFS_POINTER
    ? "the file is a pointer of Git LFS: 'git lfs pull' fetches the plan"
    : `the file of ${plan.length} bytes is no TensorRT plan: make one with 'trtexec --saveEngine' ` +
      `on this kind of GPU`;
  throw new ServerError("INVALID_ARG", `unable to load '${path}': ${why}`);
}

/** What to do about a plan that TensorRT refuses, by its words; "" = unknown. */
export function planHint(reason: string, version: string): string {
  if (
    /not compatible with this version|expecting library version|serialization.*version/i.test(
      reason,
    )
  ) {
    return `; build the plan again with TensorRT ${version}, or serve it with the TensorRT it was ` +
      `built with (--backend-config=tensorrt,library=/path/of/libnvinfer.so)`;
  }
  if (/incompatible device|expecting compute|different (GPU|device)/i.test(reason)) {
    return "; build the plan again on this kind of GPU, or name one plan per compute capability " +
      "in cc_model_filenames";
  }
  if (/out of memory|OutOfMemory/i.test(reason)) return "; the GPU has too little free memory";
  if (/blobSize|header\.size|Magic tag|deserializ|Serialization assertion/i.test(reason)) {
    return "; the file is cut off or damaged: copy or build the plan again";
  }
  return "";
}
