import { dirname } from "node:path";
import { readTar, type TarEntry, type TarSource } from "./tar_reader.ts";

const ENTRY_COUNT_MAX = 2_000_000;
const BYTE_SIZE_MAX = 64 * 1024 ** 3;
const PERMISSIONS = 0o755;

/**
 * Unpacks a tar.gz archive into an empty folder. Nothing is written outside of it: names with `..`, absolute ones, and
 * those that lead through a link are refused.
 * @throws Error telling the entry.
 */
export async function unpackArchive(archive: string, folder: string): Promise<void> {
  const file = await Deno.open(archive);
  const unpacking = new Unpacking(folder);
  // Closes the file at its end, and when it is left early.
  const stream = file.readable.pipeThrough(new DecompressionStream("gzip"));
  for await (const entry of readTar(stream)) await unpacking.write(entry, entry.content);
}

class Unpacking {
  readonly #folder: string;
  readonly #links = new Set<string>();
  readonly #folders = new Set<string>([""]);
  #entryCount = 0;
  #byteSize = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async write(entry: TarEntry, content: TarSource): Promise<void> {
    this.#byteSize += entry.byteSize;
    if (++this.#entryCount > ENTRY_COUNT_MAX || this.#byteSize > BYTE_SIZE_MAX) {
      throw new RangeError(
        `The archive has more than ${ENTRY_COUNT_MAX} entries or ${BYTE_SIZE_MAX} bytes`,
      );
    }
    const name = this.#checked(entry.name);
    if (name === "") return;
    if (entry.type === "folder") return await this.#makeFolder(name);
    await this.#makeFolder(dirname(name) === "." ? "" : dirname(name));
    const path = `${this.#folder}/${name}`;
    switch (entry.type) {
      case "file":
        return await writeFile(path, entry, content);
      case "symlink":
        this.#links.add(name);
        return await Deno.symlink(entry.target, path);
      case "link":
        return await Deno.link(`${this.#folder}/${this.#checked(entry.target)}`, path);
      default:
        throw new TypeError(`'${entry.name}' is no file, folder or link`);
    }
  }

  async #makeFolder(name: string): Promise<void> {
    if (this.#folders.has(name)) return;
    await Deno.mkdir(`${this.#folder}/${name}`, { recursive: true, mode: PERMISSIONS });
    this.#folders.add(name);
  }

  /** The name without `.` and doubled slashes. @throws TypeError for one that leads elsewhere. */
  #checked(name: string): string {
    if (name.startsWith("/")) throw new TypeError(`Path is absolute: '${name}'`);
    const parts = name.split("/").filter((part) => part !== "" && part !== ".");
    if (parts.includes("..")) throw new TypeError(`Path contains '..': '${name}'`);
    if (name.includes("\0")) throw new TypeError(`Path contains a zero: '${name}'`);
    for (let end = 1; end <= parts.length; end++) {
      if (this.#links.has(parts.slice(0, end).join("/"))) {
        throw new TypeError(`Path leads through a symbolic link: '${name}'`);
      }
    }
    return parts.join("/");
  }
}

async function writeFile(path: string, entry: TarEntry, content: TarSource): Promise<void> {
  const mode = entry.mode & PERMISSIONS | 0o600;
  using file = await Deno.open(path, { write: true, createNew: true, mode });
  await content((chunk) => writeAll(file, chunk));
}

async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
}
