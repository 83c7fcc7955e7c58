import { dirname, join } from "node:path";
import { configError } from "../proto/model_config.ts";
import { ServerError } from "../proto/status.ts";
import type { ModelSource } from "./backend.ts";
import { statPath } from "./stat_path.ts";

/** A backend that runs on OpenVINO, and where its models have their file. */
export interface FilePlace {
  readonly backend: string;
  readonly defaultFilename: string;
  /** Names that are looked for where the default is not there, in this order. */
  readonly otherFilenames: readonly string[];
  /** Instances on CPUs when the configuration gives none. */
  readonly instanceCount: number;
  /** What is read, for people. */
  readonly formats: string;
}

export const OPENVINO_PLACE: FilePlace = {
  backend: "openvino",
  defaultFilename: "model.xml",
  otherFilenames: ["model.onnx", "model.savedmodel", "model.tflite"],
  instanceCount: 1,
  formats: "model.xml with model.bin, model.onnx, model.savedmodel, model.tflite",
};

export const TENSORFLOW_PLACE: FilePlace = {
  backend: "tensorflow",
  defaultFilename: "model.savedmodel",
  otherFilenames: ["model.graphdef"],
  instanceCount: 2,
  formats: "a folder model.savedmodel, or a frozen graph model.graphdef",
};

const FORMAT = /\.(?:xml|onnx|tflite|pb|savedmodel|graphdef)$/i;

/**
 * Path of what the runtime reads: a file, or the folder of a SavedModel. Without a name in the configuration that is
 * the default of the backend, else what is there of the other formats under their default names.
 * @throws ServerError UNAVAILABLE when there is none, INVALID_ARG when the name leaves the version folder.
 */
export async function findModelPath(
  source: ModelSource,
  place: FilePlace = OPENVINO_PLACE,
): Promise<string> {
  const { defaultFilename, otherFilenames } = place;
  const filename = source.config.defaultModelFilename || defaultFilename;
  if (filename.split(/[\\/]/).includes("..")) {
    throw new ServerError(
      "INVALID_ARG",
      `default_model_filename '${filename}' of model '${source.name}' must not contain '..'`,
    );
  }
  const names = filename === defaultFilename ? [filename, ...otherFilenames] : [filename];
  for (const name of names) {
    const path = join(source.versionDirectory, name);
    const stat = await statPath(path);
    if (stat === undefined) continue;
    if (stat.isDirectory) return await checkFolder(path, source);
    if (!stat.isFile) throw notRegular(path);
    if (name.endsWith(".xml")) await checkWeights(path, source);
    return path;
  }
  throw await missing(join(source.versionDirectory, filename), source, place);
}

/** A folder is a SavedModel, or holds one file under a name of its own. */
async function checkFolder(path: string, source: ModelSource): Promise<string> {
  const hasGraph = await statPath(join(path, "saved_model.pb")) !== undefined ||
    await statPath(join(path, "saved_model.pbtxt")) !== undefined;
  if (hasGraph) {
    await checkFiles(path);
    return path;
  }
  throw new ServerError(
    "UNAVAILABLE",
    `unable to load '${path}' for model '${source.name}': the folder holds no 'saved_model.pb', ` +
      `so it is no SavedModel of TensorFlow; other formats are single files`,
  );
}

/** The runtime would wait for ever on a pipe. @throws ServerError UNAVAILABLE for what is no file in a folder. */
async function checkFiles(folder: string): Promise<void> {
  for await (const entry of Deno.readDir(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory) await checkFiles(path);
    else if (!entry.isFile) await checkLink(path);
  }
}

async function checkLink(path: string): Promise<void> {
  const stat = await statPath(path);
  if (stat === undefined || stat.isFile || stat.isDirectory) return;
  throw notRegular(path);
}

function notRegular(path: string): ServerError {
  return new ServerError("UNAVAILABLE", `unable to load '${path}': it is no regular file`);
}

/** The runtime reads an IR without its weights and only fails later, with other words. */
async function checkWeights(path: string, source: ModelSource): Promise<void> {
  const weights = path.replace(/\.xml$/, ".bin");
  const stat = await statPath(weights);
  if (stat !== undefined && !stat.isFile) throw notRegular(weights);
  if (stat !== undefined) return;
  // A graph without constants needs none.
  const text = await Deno.readTextFile(path).catch(() => "");
  if (!/<layer\b[^>]*\btype="Const"/.test(text)) return;
  throw new ServerError(
    "UNAVAILABLE",
    `unable to find '${weights}' for model '${source.name}': an OpenVINO IR is two files, the ` +
      `graph '.xml' and beside it the weights '.bin'`,
  );
}

async function missing(
  path: string,
  source: ModelSource,
  place: FilePlace,
): Promise<ServerError> {
  const names: string[] = [];
  try {
    for await (const { name } of Deno.readDir(dirname(path))) {
      if (FORMAT.test(name)) names.push(name);
    }
  } catch {
    // No folder: the message names it.
  }
  const other = names.length === 1 ? names[0] : undefined;
  return configError([{
    path: "",
    message: `unable to find '${path}' for model instance '${source.name}'`,
    code: "UNAVAILABLE",
    place: source.versionDirectory.split("/").slice(-2).join("/"),
    hint: other === undefined
      ? `backend '${place.backend}' reads ${place.formats}`
      : `there is '${other}': set default_model_filename: "${other}"`,
  }]);
}
