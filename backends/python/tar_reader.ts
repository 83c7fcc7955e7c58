const BLOCK = 512;
/** Long names and the like. */
const EXTENSION_BYTE_SIZE_MAX = 1024 * 1024;

const decoder = new TextDecoder();

/** Hands the bytes of an entry to `write`, in order. */
export type TarSource = (write: (chunk: Uint8Array) => Promise<void>) => Promise<void>;

/** One entry of an archive. */
export interface TarEntry {
  readonly name: string;
  readonly type: "file" | "folder" | "symlink" | "link" | "other";
  readonly mode: number;
  readonly byteSize: number;
  /** Of links. */
  readonly target: string;
  /** What is not read of it is skipped. */
  readonly content: TarSource;
}

/**
 * Reads a tar archive: ustar, GNU and PAX. `onBytes` is told of all that is read, and ends it by throwing.
 * @throws Error for what is none.
 */
export async function* readTar(
  stream: ReadableStream<Uint8Array>,
  onBytes: (byteSize: number) => void = () => {},
): AsyncGenerator<TarEntry> {
  const bytes = new ByteQueue(stream.getReader(), onBytes);
  try {
    let extension: Extension = {};
    for (;;) {
      const header = await bytes.take(BLOCK);
      if (header === undefined || header.every((byte) => byte === 0)) return;
      checkSum(header);
      const letter = String.fromCharCode(header[156]!);
      const ownSize = readNumber(header, 124, 12);
      if ("xgLK".includes(letter)) {
        const given = await readExtension(bytes, letter, ownSize);
        // What `g` says of all entries is nothing that matters here.
        if (letter !== "g") extension = { ...extension, ...given };
        continue;
      }
      const byteSize = extension.size ?? ownSize;
      let isRead = false;
      const content: TarSource = async (write) => {
        isRead = true;
        await bytes.pass(byteSize, write);
      };
      yield { ...describe(header, letter, extension), byteSize, content };
      if (!isRead) await bytes.pass(byteSize, () => Promise.resolve());
      await bytes.pass(padding(byteSize), () => Promise.resolve());
      extension = {};
    }
  } finally {
    await bytes.close();
  }
}

interface Extension {
  readonly name?: string;
  readonly target?: string;
  readonly size?: number;
}

function describe(header: Uint8Array, letter: string, { name, target }: Extension) {
  const prefix = readText(header, 257, 5) === "ustar" && header[262] === 0
    ? readText(header, 345, 155)
    : "";
  const ownName = readText(header, 0, 100);
  const fullName = name ?? (prefix === "" ? ownName : `${prefix}/${ownName}`);
  return {
    name: fullName,
    type: entryType(letter, fullName),
    mode: readNumber(header, 100, 8),
    target: target ?? readText(header, 157, 100),
  };
}

function entryType(letter: string, name: string): TarEntry["type"] {
  switch (letter) {
    case "0":
    case "\0":
    case "7":
      return name.endsWith("/") ? "folder" : "file";
    case "1":
      return "link";
    case "2":
      return "symlink";
    case "5":
      return "folder";
    default:
      return "other";
  }
}

async function readExtension(
  bytes: ByteQueue,
  letter: string,
  byteSize: number,
): Promise<Extension> {
  if (byteSize > EXTENSION_BYTE_SIZE_MAX) throw new RangeError(`A name has ${byteSize} bytes`);
  const data = await bytes.take(byteSize + padding(byteSize));
  if (data === undefined) throw new RangeError("The archive ends in the middle of an entry");
  if (letter === "L") return { name: readText(data, 0, byteSize) };
  if (letter === "K") return { target: readText(data, 0, byteSize) };
  return readRecords(data.subarray(0, byteSize));
}

/** PAX: lines `<length> <key>=<value>`, the length counting the whole line. */
function readRecords(data: Uint8Array): Extension {
  const extension: { name?: string; target?: string; size?: number } = {};
  for (let start = 0; start < data.length;) {
    const length = Number.parseInt(decoder.decode(data.subarray(start, start + 10)));
    if (!(length > 0) || start + length > data.length) throw new RangeError("A header is broken");
    const line = decoder.decode(data.subarray(start, start + length - 1));
    const [, key, value] = /^\d+ ([^=]*)=([^]*)$/.exec(line) ?? [];
    if (key === "path") extension.name = value ?? "";
    if (key === "linkpath") extension.target = value ?? "";
    if (key === "size") extension.size = checkSize(Number(value));
    start += length;
  }
  return extension;
}

function readText(bytes: Uint8Array, start: number, length: number): string {
  const field = bytes.subarray(start, start + length);
  const end = field.indexOf(0);
  return decoder.decode(end < 0 ? field : field.subarray(0, end));
}

/** Octal digits, or with the highest bit set a binary number. */
function readNumber(header: Uint8Array, start: number, length: number): number {
  if ((header[start]! & 0x80) === 0) {
    const digits = readText(header, start, length).trim();
    return checkSize(digits === "" ? 0 : Number.parseInt(digits, 8));
  }
  let value = header[start]! & 0x7f;
  for (let at = start + 1; at < start + length; at++) value = value * 256 + header[at]!;
  return checkSize(value);
}

function checkSize(value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new RangeError("A header is broken");
}

function checkSum(header: Uint8Array): void {
  const expected = readNumber(header, 148, 8);
  let sum = 0;
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 32 : header[at]!;
  if (sum !== expected) throw new RangeError("The file is no tar archive");
}

function padding(byteSize: number): number {
  return (BLOCK - byteSize % BLOCK) % BLOCK;
}

/** Takes bytes from a stream in the pieces that are asked for. */
class ByteQueue {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #onBytes: (byteSize: number) => void;
  #rest: Uint8Array = new Uint8Array();

  constructor(
    reader: ReadableStreamDefaultReader<Uint8Array>,
    onBytes: (byteSize: number) => void,
  ) {
    this.#reader = reader;
    this.#onBytes = onBytes;
  }

  /** So many bytes; undefined when the stream ends before the first. */
  async take(byteSize: number): Promise<Uint8Array | undefined> {
    if (this.#rest.length === 0 && !await this.#more()) return undefined;
    const taken = new Uint8Array(byteSize);
    let done = 0;
    await this.pass(byteSize, (chunk) => {
      taken.set(chunk, done);
      done += chunk.length;
      return Promise.resolve();
    });
    return taken;
  }

  /** Hands on so many bytes. */
  async pass(byteSize: number, write: (chunk: Uint8Array) => Promise<void>): Promise<void> {
    for (let missing = byteSize; missing > 0;) {
      if (this.#rest.length === 0 && !await this.#more()) {
        throw new RangeError("The archive ends in the middle of an entry");
      }
      const chunk = this.#rest.subarray(0, missing);
      this.#rest = this.#rest.subarray(chunk.length);
      missing -= chunk.length;
      await write(chunk);
    }
  }

  async close(): Promise<void> {
    await this.#reader.cancel().catch(() => {});
  }

  async #more(): Promise<boolean> {
    for (;;) {
      const { done, value } = await this.#reader.read();
      if (done) return false;
      if (value.length === 0) continue;
      this.#onBytes(value.length);
      this.#rest = value;
      return true;
    }
  }
}
