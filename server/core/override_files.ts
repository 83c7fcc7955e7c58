import { printableName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import { reasonText } from "./model_repository_files.ts";

const PREFIX = "file:";
const FILES_MAX = 1000;
const DEPTH_MAX = 16;
/** What common file systems accept. */
const NAME_BYTES_MAX = 255;
const PATH_BYTES_MAX = 1024;
const BYTES_MAX = 4 * 1024 ** 3;

/** Files of a load request by their path relative to the model's folder. */
export type OverrideFiles = ReadonlyMap<string, Uint8Array>;

/** What a load request brings instead of what is on disk (management.md §5.1 and §5.2). */
export interface ModelOverride {
  /** ModelConfig in JSON, instead of the configuration file. */
  readonly config: string;
  /** Instead of all files of the model's folder. */
  readonly files?: OverrideFiles | undefined;
}

/**
 * The files among the parameters of a load request; undefined = none.
 * @throws ServerError INVALID_ARG for a path that is none inside of a folder, or for too much of anything.
 */
export function readOverrideFiles(
  model: string,
  parameters: Readonly<Record<string, string | Uint8Array>>,
): OverrideFiles | undefined {
  const files = new Map<string, Uint8Array>();
  const refuse = (key: string, what: string): never => {
    const shown = printableName(key.slice(0, NAME_BYTES_MAX));
    throw new ServerError(
      "INVALID_ARG",
      `failed to load '${model}', load parameter '${shown}' ${what}`,
    );
  };
  let byteSize = 0;
  for (const [key, content] of Object.entries(parameters)) {
    if (!key.startsWith(PREFIX)) continue;
    if (typeof content === "string") return refuse(key, "must bring bytes");
    const path = placeInFolder(key.slice(PREFIX.length));
    const problem = pathProblem(path);
    if (problem !== undefined) refuse(key, problem);
    if (files.has(path)) refuse(key, "names a file that another parameter names too");
    files.set(path, content);
    byteSize += content.byteLength;
  }
  if (files.size === 0) return undefined;
  if (files.size > FILES_MAX || byteSize > BYTES_MAX) {
    throw new ServerError(
      "INVALID_ARG",
      `failed to load '${model}', at most ${FILES_MAX} files with ${BYTES_MAX} bytes in all can ` +
        `come with a load request, got ${files.size} files with ${byteSize} bytes`,
    );
  }
  checkNoFileIsFolder(files, refuse);
  return files;
}

/** Writes the files into a fresh folder. @throws ServerError INTERNAL when one cannot be written. */
export async function writeOverrideFiles(files: OverrideFiles, directory: string): Promise<void> {
  for (const [path, content] of files) {
    try {
      const folder = path.split("/").slice(0, -1).join("/");
      if (folder !== "") await Deno.mkdir(`${directory}/${folder}`, { recursive: true });
      await Deno.writeFile(`${directory}/${path}`, content, { createNew: true });
      const { size } = await Deno.lstat(`${directory}/${path}`);
      if (size !== content.byteLength) throw new RangeError(`only ${size} bytes were written`);
    } catch (reason) {
      throw new ServerError(
        "INTERNAL",
        `failed to write file '${printableName(path)}' of the load request: ${reasonText(reason)}`,
        { cause: reason },
      );
    }
  }
}

/** `/1/model.py` and `1//model.py` name the file that `1/model.py` names, as they do in the reference. */
function placeInFolder(path: string): string {
  const folder = path.endsWith("/") ? "/" : "";
  return path.split("/").filter((part) => part !== "." && part !== "").join("/") + folder;
}

function pathProblem(path: string): string | undefined {
  const parts = path.split("/");
  const encoder = new TextEncoder();
  if (parts.includes("") || parts.includes("..") || /[\\\0]/.test(path)) {
    return "must name a file inside of the model, relative to its folder";
  }
  // deno-lint-ignore no-control-regex
  if (/[\u0001-\u001f\u007f]/.test(path)) return "must not contain control characters";
  if (parts.length > DEPTH_MAX) return `must not lie deeper than ${DEPTH_MAX} folders`;
  if (
    encoder.encode(path).length > PATH_BYTES_MAX ||
    parts.some((part) => encoder.encode(part).length > NAME_BYTES_MAX)
  ) {
    return `must not be longer than ${PATH_BYTES_MAX} bytes, each name in it ${NAME_BYTES_MAX}`;
  }
  return undefined;
}

function checkNoFileIsFolder(
  files: OverrideFiles,
  refuse: (key: string, what: string) => never,
): void {
  for (const path of files.keys()) {
    for (let end = path.indexOf("/"); end >= 0; end = path.indexOf("/", end + 1)) {
      const folder = path.slice(0, end);
      if (files.has(folder)) {
        refuse(`${PREFIX}${path}`, `needs a folder where '${folder}' is a file`);
      }
    }
  }
}
