import { ServerError } from "../../proto/status.ts";
import type { BackendLog, ModelSource } from "../backend.ts";
import { unpackArchive } from "./unpack_archive.ts";

const PATH_KEY = "EXECUTION_ENV_PATH";
const MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY";

/** Where archives are unpacked to. */
export interface EnvironmentPlace {
  nextFolderPath(): string;
}

interface Unpacked {
  readonly modifiedMs: number;
  readonly path: Promise<string>;
}

/** The execution environments of models: folders as they are, archives unpacked once as long as they do not change. */
export class EnvironmentStore {
  readonly #place: EnvironmentPlace;
  readonly #log: BackendLog;
  readonly #unpacked = new Map<string, Unpacked>();

  constructor(place: EnvironmentPlace, log: BackendLog) {
    this.#place = place;
    this.#log = log;
  }

  /** Folder of the environment of a model; undefined when it has none of its own. @throws ServerError */
  async open({ config, modelDirectory }: ModelSource): Promise<string | undefined> {
    const text = config.parameters[PATH_KEY]?.stringValue ?? "";
    if (text === "") return undefined;
    const given = text.startsWith(MODEL_DIRECTORY)
      ? modelDirectory + text.slice(MODEL_DIRECTORY.length)
      : text;
    const path = await Deno.realPath(given).catch((reason) => {
      const message = `Failed to get the canonical path for ${given}.`;
      throw new ServerError("INVALID_ARG", `${message} (${PATH_KEY})`, { cause: reason });
    });
    const { isDirectory, isFile, mtime } = await Deno.stat(path);
    if (!isDirectory && !isFile) {
      throw new ServerError(
        "INVALID_ARG",
        `${path} is neither a folder nor an archive of a Python environment (${PATH_KEY})`,
      );
    }
    const folder = isDirectory ? path : await this.#unpack(path, mtime?.getTime() ?? 0);
    await checkActivate(folder, text);
    return folder;
  }

  async #unpack(path: string, modifiedMs: number): Promise<string> {
    const known = this.#unpacked.get(path);
    if (known !== undefined && known.modifiedMs === modifiedMs) return await known.path;
    this.#log.info(`Extracting Python execution env ${path}`);
    // Processes may still run in what was unpacked before: it stays until the end.
    const unpacked = { modifiedMs, path: this.#unpackTo(path, this.#place.nextFolderPath()) };
    this.#unpacked.set(path, unpacked);
    try {
      return await unpacked.path;
    } catch (reason) {
      if (this.#unpacked.get(path) === unpacked) this.#unpacked.delete(path);
      throw reason;
    }
  }

  async #unpackTo(path: string, folder: string): Promise<string> {
    try {
      await Deno.mkdir(folder, { mode: 0o700 });
      await unpackArchive(path, folder);
      return folder;
    } catch (reason) {
      await Deno.remove(folder, { recursive: true }).catch(() => {});
      const text = reason instanceof Error ? reason.message : String(reason);
      throw new ServerError(
        "INVALID_ARG",
        `Failed to extract the Python execution env '${path}': ${text}`,
        { cause: reason },
      );
    }
  }
}

/** A folder without the script is hardly an environment; the script itself is not run. */
async function checkActivate(folder: string, given: string): Promise<void> {
  const path = `${folder}/bin/activate`;
  const exists = await Deno.stat(path).then(() => true, () => false);
  if (exists) return;
  throw new ServerError(
    "INVALID_ARG",
    `Path ${path} does not exist. The Python environment should contain an 'activate' script ` +
      `(${PATH_KEY} is '${given}')`,
  );
}
