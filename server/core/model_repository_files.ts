import { joinParts } from "../../proto/join_parts.ts";
import { ServerError, type StatusCode } from "../../proto/status.ts";

/** A directory entry; links are followed. */
export interface DirectoryEntry {
  readonly name: string;
  readonly isDirectory: boolean;
}

/** More entries than this in one directory are not looked at. */
const ENTRIES_MAX = 100_000;
const READ_BYTES = 65_536;

/** Entries of a directory, sorted by name (code units). @throws what Deno throws. */
export async function readDirectory(path: string): Promise<DirectoryEntry[]> {
  const entries: DirectoryEntry[] = [];
  for await (const entry of Deno.readDir(path)) {
    const isDirectory = entry.isSymlink
      ? await isDirectoryPath(`${path}/${entry.name}`)
      : entry.isDirectory;
    entries.push({ name: entry.name, isDirectory });
    if (entries.length > ENTRIES_MAX) {
      throw new RangeError(`more than ${ENTRIES_MAX} entries`);
    }
  }
  return entries.sort((left, right) => left.name < right.name ? -1 : 1);
}

/** True for a directory, also behind a link; false when nothing is there or it cannot be looked at. */
export async function isDirectoryPath(path: string): Promise<boolean> {
  try {
    return (await Deno.stat(path)).isDirectory;
  } catch {
    return false;
  }
}

/** A file named in an error text. */
export interface NamedFile {
  /** Where it is. */
  readonly path: string;
  /** How clients may see it: relative to the repository. */
  readonly name: string;
  /** Folder that its real path must be in. */
  readonly root: string;
}

/**
 * Opens a regular file that really lies under `root`; undefined when there is none. The caller closes it.
 * @throws ServerError when it is no file, leads elsewhere or cannot be opened.
 */
export async function openRegularFile(file: NamedFile): Promise<Deno.FsFile | undefined> {
  try {
    const realPath = await Deno.realPath(file.path);
    if (!isInside(realPath, await Deno.realPath(file.root))) {
      throw fileError(
        file,
        "it is a link that leads out of the directory it must be in",
        "INVALID_ARG",
      );
    }
    // Opening a pipe or a device could wait for ever, so look first.
    const { isFile, isDirectory } = await Deno.stat(realPath);
    if (!isFile) throw fileError(file, isDirectory ? "Is a directory" : "it is no regular file");
    return await Deno.open(realPath, { read: true });
  } catch (reason) {
    if (reason instanceof ServerError) throw reason;
    if (reason instanceof Deno.errors.NotFound) return undefined;
    throw fileError(file, reasonText(reason));
  }
}

/** The bytes of such a file, at most `byteSizeMax`; undefined when there is none. */
export async function readBoundedFile(
  file: NamedFile,
  byteSizeMax: number,
): Promise<Uint8Array | undefined> {
  using handle = await openRegularFile(file);
  if (handle === undefined) return undefined;
  const chunks: Uint8Array[] = [];
  let byteSize = 0;
  for (;;) {
    const chunk = new Uint8Array(READ_BYTES);
    const count = await handle.read(chunk);
    if (count === null) break;
    byteSize += count;
    if (byteSize > byteSizeMax) throw fileError(file, `it is larger than ${byteSizeMax} bytes`);
    chunks.push(chunk.subarray(0, count));
  }
  return joinParts(chunks);
}

/** The first bytes of such a file, fewer when it is shorter; undefined when there is none. */
export async function readFirstBytes(
  file: NamedFile,
  byteSize: number,
): Promise<Uint8Array | undefined> {
  using handle = await openRegularFile(file);
  if (handle === undefined) return undefined;
  const { size } = await handle.stat();
  const bytes = new Uint8Array(Math.min(size, byteSize));
  let filled = 0;
  while (filled < bytes.byteLength) {
    const count = await handle.read(bytes.subarray(filled));
    if (count === null) break;
    filled += count;
  }
  return bytes.subarray(0, filled);
}

/** The reference's words for a file that cannot be read. */
export function fileError(
  file: { readonly name: string },
  reason: string,
  code: StatusCode = "INTERNAL",
): ServerError {
  return new ServerError(code, `failed to open text file for read ${file.name}: ${reason}`);
}

/** True when `path` is `root` or below it; both are real paths. */
export function isInside(path: string, root: string): boolean {
  return path === root || path.startsWith(root.endsWith("/") ? root : `${root}/`);
}

/** What the system said, without the paths of this machine. */
export function reasonText(reason: unknown): string {
  if (reason instanceof Deno.errors.NotFound) return "No such file or directory";
  if (reason instanceof Deno.errors.PermissionDenied) return "Permission denied";
  if (reason instanceof Deno.errors.NotCapable) return "Not allowed by the permissions of Deno";
  if (reason instanceof Deno.errors.FilesystemLoop) return "Too many levels of symbolic links";
  if (reason instanceof RangeError) return reason.message;
  const text = reason instanceof Error ? reason.message : String(reason);
  const code = /\(os error \d+\)/.exec(text)?.[0];
  return code === undefined ? "it cannot be read" : `it cannot be read ${code}`;
}
