import { dirname } from "node:path";
import { readTar, type TarEntry, type TarSource } from "./tar_reader.ts";

const ENTRY_COUNT_MAX = 2_000_000;
const BYTE_SIZE_MAX = 64 * 1024 ** 3;
/** What is packed tighter than any environment is, and much, is made to fill the disk. */
const BYTES_PER_PACKED_BYTE_MAX = 100;
const BYTE_SIZE_TRUSTED = 64 * 1024 ** 2;
/** The longest path that Linux takes. */
const NAME_LENGTH_MAX = 4096;
const PERMISSIONS = 0o755;

/**
 * Unpacks a tar.gz archive into an empty folder. Nothing is written outside of it: names with `..`, absolute ones, and
 * those that lead through a link are refused, and so is what has far more bytes than the archive.
 * @throws Error telling the entry.
 */
export async function unpackArchive(archive: string, folder: string): Promise<void> {
  const file = await Deno.open(archive);
  let size: number;
  try {
    ({ size } = await file.stat());
    await checkMagic(file);
  } catch (error) {
    file.close();
    throw error;
  }
  const unpacking = new Unpacking(folder, byteSizeLimit(size));
  // Closes the file at its end, and when it is left early.
  const stream = file.readable.pipeThrough(new DecompressionStream("gzip"));
  const entries = readTar(stream, (byteSize) => unpacking.count(byteSize));
  for await (const entry of entries) await unpacking.write(entry, entry.content);
}

/** Tells what is no gzip before something is made of it; reading starts at the beginning afterwards. */
async function checkMagic(file: Deno.FsFile): Promise<void> {
  const head = new Uint8Array(2);
  const count = await file.read(head);
  if (count !== 2 || head[0] !== 0x1f || head[1] !== 0x8b) {
    throw new TypeError("The file is no .tar.gz archive: it does not begin as gzip does");
  }
  await file.seek(0, Deno.SeekMode.Start);
}

function byteSizeLimit(packedByteSize: number): number {
  const plausible = Math.max(packedByteSize * BYTES_PER_PACKED_BYTE_MAX, BYTE_SIZE_TRUSTED);
  return Math.min(plausible, BYTE_SIZE_MAX);
}

class Unpacking {
  readonly #folder: string;
  readonly #byteSizeMax: number;
  readonly #links = new Set<string>();
  readonly #folders = new Set<string>([""]);
  #entryCount = 0;
  #byteSize = 0;

  constructor(folder: string, byteSizeMax: number) {
    this.#folder = folder;
    this.#byteSizeMax = byteSizeMax;
  }

  /** Counts what was unpacked, headers included. @throws RangeError when it is too much. */
  count(byteSize: number): void {
    this.#byteSize += byteSize;
    if (this.#byteSize <= this.#byteSizeMax) return;
    throw new RangeError(
      `The archive has more than ${this.#byteSizeMax} bytes unpacked, the most that one of its ` +
        "size may have",
    );
  }

  async write(entry: TarEntry, content: TarSource): Promise<void> {
    if (++this.#entryCount > ENTRY_COUNT_MAX) {
      throw new RangeError(`The archive has more than ${ENTRY_COUNT_MAX} entries`);
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
    if (name.length > NAME_LENGTH_MAX) {
      throw new RangeError(`Path has more than ${NAME_LENGTH_MAX} characters`);
    }
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
