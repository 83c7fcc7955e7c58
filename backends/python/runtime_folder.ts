import { ServerError } from "../../proto/status.ts";
import { makeSocketFolder } from "../process/socket_folder.ts";
import { RUNTIME_FILES } from "./runtime_files.ts";

const STUB_FILE = "nereid_stub.py";

/** Removes the folder when the server is gone, however that came. It reads from the server until then. */
const JANITOR =
  `trap '' INT TERM HUP; while read -r line; do :; done; rm -rf -- "$0" || { sleep 1; rm -rf -- "$0"; }`;

/** The private folder of one server: the files that Python processes run, their sockets, unpacked environments. */
export class RuntimeFolder implements AsyncDisposable {
  readonly path: string;
  readonly #janitor: Deno.ChildProcess | undefined;
  #socketCount = 0;
  #folderCount = 0;
  #isRemoved = false;

  private constructor(path: string, janitor: Deno.ChildProcess | undefined) {
    this.path = path;
    this.#janitor = janitor;
  }

  /** Makes it. @throws ServerError INTERNAL when it cannot be written. */
  static async create(): Promise<RuntimeFolder> {
    try {
      const path = await makeSocketFolder("nereid-python-");
      // Before anything is in it, so that nothing is left of a server that is killed.
      const janitor = startJanitor(path);
      for (const [name, text] of Object.entries(RUNTIME_FILES)) {
        await Deno.writeTextFile(`${path}/${name}`, text);
      }
      return new RuntimeFolder(path, janitor);
    } catch (reason) {
      const text = reason instanceof Error ? reason.message : String(reason);
      throw new ServerError(
        "INTERNAL",
        `failed to write the files of Python processes to a temporary folder: ${text}`,
        { cause: reason },
      );
    }
  }

  /** What a process is started with. */
  get stubPath(): string {
    return `${this.path}/${STUB_FILE}`;
  }

  /** A path for the socket of one process. */
  nextSocketPath(): string {
    return `${this.path}/${++this.#socketCount}.sock`;
  }

  /** A path for a folder. */
  nextFolderPath(): string {
    return `${this.path}/environment${++this.#folderCount}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isRemoved) return;
    this.#isRemoved = true;
    await Deno.remove(this.path, { recursive: true }).catch(() => {});
    this.#janitor?.ref();
    await this.#janitor?.stdin.close().catch(() => {});
    await this.#janitor?.status;
  }
}

function startJanitor(path: string): Deno.ChildProcess | undefined {
  try {
    const janitor = new Deno.Command("sh", {
      args: ["-c", JANITOR, path],
      stdin: "piped",
      stdout: "null",
      stderr: "null",
      detached: true,
    }).spawn();
    janitor.unref();
    return janitor;
  } catch {
    // Without a shell the folder stays when the server is killed.
    return undefined;
  }
}
