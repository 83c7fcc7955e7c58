import { ServerError } from "../../proto/status.ts";
import { reasonText } from "./model_repository_files.ts";

/** Only the server may look into folders that clients or agents filled. */
const OWNER_ONLY = 0o700;
const PREFIX = "nereid-models-";
/** Locked as long as the server that made the folder is alive. */
const LOCK_FILE = ".lock";

/** A fresh folder that holds a model as long as the model is loaded. */
export interface TemporaryFolder {
  /** Real absolute path. */
  readonly path: string;
  /** Removes it with all that is in it; calling it twice does no harm. */
  remove(): Promise<void>;
}

/**
 * Folders that live no longer than the server: they all lie in one folder of the system's place for temporary files,
 * which is made for the first of them and removed by `close`, at the latest when the process exits. What a server left
 * that was killed, the next one removes.
 */
export class TemporaryFolders {
  #root: Promise<string> | undefined;
  #rootPath: string | undefined;
  #lock: Deno.FsFile | undefined;
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
    this.#lock?.close();
    this.#lock = undefined;
  }

  async #createRoot(): Promise<string> {
    const path = await Deno.realPath(await Deno.makeTempDir({ prefix: PREFIX }));
    this.#rootPath = path;
    this.#lock = await createLock(path);
    await removeAbandoned(path.slice(0, path.lastIndexOf("/")));
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

/** A locked file that nobody ever sees unlocked while its folder is in use. */
async function createLock(directory: string): Promise<Deno.FsFile> {
  const file = await Deno.open(`${directory}/${LOCK_FILE}.new`, { write: true, createNew: true });
  await file.lock(true);
  await Deno.rename(`${directory}/${LOCK_FILE}.new`, `${directory}/${LOCK_FILE}`);
  return file;
}

/** Removes the folders of servers that are gone, as far as they can be removed. */
async function removeAbandoned(place: string): Promise<void> {
  for await (const { name, isDirectory } of Deno.readDir(place)) {
    if (!isDirectory || !name.startsWith(PREFIX)) continue;
    try {
      const path = `${place}/${name}/${LOCK_FILE}`;
      // Anybody may have put a pipe there, and opening it could wait for ever.
      if (!(await Deno.lstat(path)).isFile) continue;
      using file = await Deno.open(path, { write: true });
      if (await file.tryLock(true)) await removeFolder(`${place}/${name}`);
    } catch {
      // It is another user's, or just being made or removed.
    }
  }
}

async function removeFolder(path: string): Promise<void> {
  await Deno.remove(path, { recursive: true }).catch((reason) => {
    if (!(reason instanceof Deno.errors.NotFound)) throw reason;
  });
}
