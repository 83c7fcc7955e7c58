/** Of ELF: its first bytes, sizes of its header and of an entry of its table, and where their fields are. */
const MAGIC = 0x464c_457f;
const CLASS_64 = 2;
const HEADER_BYTE_SIZE = 64;
const ENTRY_BYTE_SIZE = 56;
const PT_LOAD = 1;
const MACHINES: Readonly<Record<number, string>> = {
  3: "x86",
  40: "arm",
  62: "x86_64",
  183: "aarch64",
  243: "riscv",
};

/**
 * Why the system's loader must not see a file; undefined = it may. The loader waits for ever on a pipe, and a file that
 * is cut off ends the process by SIGBUS. A bare name is looked up by the loader itself, and not looked at here.
 */
export function libraryFileFault(path: string): string | undefined {
  if (Deno.build.os !== "linux" || !path.includes("/") || !mayRead(path)) return undefined;
  try {
    const { isFile, size } = Deno.statSync(path);
    if (!isFile) return "it is no regular file";
    using file = Deno.openSync(path);
    return elfFault(file, size);
  } catch {
    // The loader tells of files that are not there or that may not be read.
    return undefined;
  }
}

/** A question at the terminal would be worse than no answer. */
function mayRead(path: string): boolean {
  return Deno.permissions.querySync({ name: "read", path }).state === "granted";
}

function elfFault(file: Deno.FsFile, size: number): string | undefined {
  const head = readAt(file, 0, HEADER_BYTE_SIZE);
  if (head === undefined || head.getUint32(0, true) !== MAGIC) return "it is no shared library";
  if (head.getUint8(4) !== CLASS_64) return "it is a library for processors of 32 bits";
  const machine = head.getUint16(18, true);
  const name = MACHINES[machine] ?? `machine ${machine} of ELF`;
  if (name !== Deno.build.arch) {
    return `it is a library for ${name}, this machine is ${Deno.build.arch}`;
  }
  const wanted = loadedByteSize(file, head);
  if (wanted !== undefined && wanted <= size) return undefined;
  const more = wanted === undefined ? "" : ` of ${wanted}`;
  return `the file is cut off: it has ${size} bytes${more}`;
}

/** The end of the last part that is mapped; undefined when the table of parts is cut off itself. */
function loadedByteSize(file: Deno.FsFile, head: DataView): number | undefined {
  const count = head.getUint16(56, true);
  const table = readAt(file, Number(head.getBigUint64(32, true)), count * ENTRY_BYTE_SIZE);
  if (table === undefined) return undefined;
  let end = 0;
  for (let at = 0; at < table.byteLength; at += ENTRY_BYTE_SIZE) {
    if (table.getUint32(at, true) !== PT_LOAD) continue;
    const [offset, byteSize] = [
      table.getBigUint64(at + 8, true),
      table.getBigUint64(at + 32, true),
    ];
    end = Math.max(end, Number(offset + byteSize));
  }
  return end;
}

/** Undefined when there are not so many bytes. */
function readAt(file: Deno.FsFile, offset: number, byteSize: number): DataView | undefined {
  const bytes = new Uint8Array(byteSize);
  if (!Number.isSafeInteger(offset)) return undefined;
  file.seekSync(offset, Deno.SeekMode.Start);
  for (let have = 0; have < byteSize;) {
    const count = file.readSync(bytes.subarray(have));
    if (count === null) return undefined;
    have += count;
  }
  return new DataView(bytes.buffer);
}
