import { ServerError } from "../../proto/status.ts";
import { reasonText } from "./model_repository_files.ts";

/** Only the server may look into folders that clients or agents filled. */
const OWNER_ONLY = 0o700;
const PREFIX = "nereid-models-";

/** A fresh folder that holds a model as long as the model is loaded. */
export interface TemporaryFolder {
  /** Real absolute path. */
  readonly path: string;
  /** Removes it with all that is in it; calling it twice does no harm. */
  remove(): Promise<void>;
}

/**
 * Folders that live no longer than the server: they all lie in one folder of the system's place for temporary files,
 * which is made for the first of them and removed by `close`, at the latest when the process exits.
 */
export class TemporaryFolders {
  #root: Promise<string> | undefined;
  #rootPath: string | undefined;
  #count = 0;
  #isClosed = false;

  /** @throws ServerError INTERNAL when the folder cannot be made, UNAVAILABLE when the server exits. */
  async create(): Promise<TemporaryFolder> {
    if (this.#isClosed) throw new ServerError("UNAVAILABLE", "Server exiting");
    try {
      const path = `${await (this.#root ??= this.#createRoot())}/${++this.#count}`;
      await Deno.mkdir(path, { mode: OWNER_ONLY });
      return { path, remove: () => removeFolder(path) };
    } catch (reason) {
      // The next load may find room.
      if (this.#rootPath === undefined) this.#root = undefined;
      throw new ServerError(
        "INTERNAL",
        `failed to create a temporary directory for the model: ${reasonText(reason)}`,
        { cause: reason },
      );
    }
  }

  /** Removes everything; nothing is created afterwards. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#root?.catch(() => {});
    globalThis.removeEventListener("unload", this.#removeAtExit);
    if (this.#rootPath !== undefined) await removeFolder(this.#rootPath);
  }

  async #createRoot(): Promise<string> {
    const path = await Deno.realPath(await Deno.makeTempDir({ prefix: PREFIX }));
    this.#rootPath = path;
    globalThis.addEventListener("unload", this.#removeAtExit);
    return path;
  }

  /** A process that is ended in haste waits for nothing. */
  readonly #removeAtExit = (): void => {
    try {
      if (this.#rootPath !== undefined) Deno.removeSync(this.#rootPath, { recursive: true });
    } catch {
      // Nobody is left to be told.
    }
  };
}

async function removeFolder(path: string): Promise<void> {
  await Deno.remove(path, { recursive: true }).catch((reason) => {
    if (!(reason instanceof Deno.errors.NotFound)) throw reason;
  });
}
