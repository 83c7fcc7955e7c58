import { inflateRawSync } from "node:zlib";

const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
const LOCAL_BYTES = 30;
const MAX_COMMENT_BYTES = 0xffff;
const STORED = 0;
const DEFLATED = 8;
/** No file of a package that is read here is larger. */
const MAX_FILE_BYTES = 512 * 1024 * 1024;

interface ZipEntry {
  readonly method: number;
  readonly compressedSize: number;
  readonly byteSize: number;
  readonly offset: number;
}

/** The files of a zip archive in memory, such as a Python wheel or a checkpoint of PyTorch. */
export class ZipArchive {
  readonly #bytes: Uint8Array;
  readonly #entries: ReadonlyMap<string, ZipEntry>;

  /** @throws Error when the bytes are no zip archive. */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#entries = readDirectory(bytes);
  }

  /** Paths of all files. */
  names(): string[] {
    return [...this.#entries.keys()];
  }

  /** The content of a file. @throws Error when it is missing, damaged, or packed by an unknown method. */
  read(name: string): Uint8Array<ArrayBuffer> {
    const entry = this.#entries.get(name);
    if (entry === undefined) throw new Error(`The archive has no file ${name}`);
    const view = viewOf(this.#bytes);
    const start = entry.offset + LOCAL_BYTES + view.getUint16(entry.offset + 26, true) +
      view.getUint16(entry.offset + 28, true);
    const packed = this.#bytes.subarray(start, start + entry.compressedSize);
    const content = unpack(packed, entry, name);
    if (content.byteLength !== entry.byteSize) {
      throw new Error(`File ${name} has ${content.byteLength} bytes, expected ${entry.byteSize}`);
    }
    return content;
  }
}

function unpack(packed: Uint8Array, entry: ZipEntry, name: string): Uint8Array<ArrayBuffer> {
  if (entry.byteSize > MAX_FILE_BYTES) {
    throw new Error(
      `File ${name} has ${entry.byteSize} bytes, at most ${MAX_FILE_BYTES} are allowed`,
    );
  }
  if (entry.method === STORED) return packed.slice();
  if (entry.method === DEFLATED) {
    return new Uint8Array(inflateRawSync(packed, { maxOutputLength: Math.max(1, entry.byteSize) }));
  }
  throw new Error(`File ${name} is packed by method ${entry.method}, expected 0 or 8`);
}

function readDirectory(bytes: Uint8Array): Map<string, ZipEntry> {
  const view = viewOf(bytes);
  const end = findEnd(view);
  const count = view.getUint16(end + 10, true);
  let offset = view.getUint32(end + 16, true);
  const entries = new Map<string, ZipEntry>();
  for (let index = 0; index < count; index++) {
    if (
      offset + ENTRY_BYTES > bytes.byteLength || view.getUint32(offset, true) !== ENTRY_SIGNATURE
    ) {
      throw new Error(`The directory of the archive is damaged at entry ${index} of ${count}`);
    }
    const nameLength = view.getUint16(offset + 28, true);
    const nameStart = offset + ENTRY_BYTES;
    const name = new TextDecoder().decode(bytes.subarray(nameStart, nameStart + nameLength));
    entries.set(name, {
      method: view.getUint16(offset + 10, true),
      compressedSize: view.getUint32(offset + 20, true),
      byteSize: view.getUint32(offset + 24, true),
      offset: view.getUint32(offset + 42, true),
    });
    offset = nameStart + nameLength + view.getUint16(offset + 30, true) +
      view.getUint16(offset + 32, true);
  }
  return entries;
}

/** The end record stands last, before a comment of any length. */
function findEnd(view: DataView): number {
  const last = view.byteLength - END_BYTES;
  for (let offset = last; offset >= Math.max(0, last - MAX_COMMENT_BYTES); offset--) {
    if (view.getUint32(offset, true) === END_SIGNATURE) return offset;
  }
  throw new Error(`These ${view.byteLength} bytes are no zip archive`);
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
