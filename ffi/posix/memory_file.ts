import { openLibrary } from "../library.ts";
import { addressOfPointer, cString } from "../memory.ts";
import { PosixError, SharedMemoryMapping } from "./shared_memory.ts";

const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
const F_GET_SEALS = 1034;
const F_SEAL_SHRINK = 2;
const O_RDWR_CLOEXEC = 0x8_0002;
const SEEK_END = 2;
const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;

const MEMORY_FILE_SYMBOLS = {
  // int memfd_create(const char* name, unsigned int flags)
  memfd_create: { parameters: ["buffer", "u32"], result: "i32" },
  // int ftruncate(int fd, off_t size)
  ftruncate: { parameters: ["i32", "i64"], result: "i32" },
  // int fcntl(int fd, int command, int argument)
  fcntl: { parameters: ["i32", "i32", "i32"], result: "i32" },
  // int open(const char* path, int flags, mode_t mode)
  open: { parameters: ["buffer", "i32", "u32"], result: "i32" },
  // off_t lseek(int fd, off_t offset, int whence)
  lseek: { parameters: ["i32", "i64", "i32"], result: "i64" },
  // void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset)
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  // int munmap(void* address, size_t size)
  munmap: { parameters: ["pointer", "usize"], result: "i32" },
  // int close(int fd)
  close: { parameters: ["i32"], result: "i32" },
  // int* __errno_location()
  __errno_location: { parameters: [], result: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

type Symbols = Deno.StaticForeignLibraryInterface<typeof MEMORY_FILE_SYMBOLS>;

let opened: Symbols | "none" | undefined;

/** The calls of the C library; undefined where there are none: other systems than Linux, or no `--allow-ffi`. */
function memoryCalls(): Symbols | undefined {
  if (opened === undefined) {
    opened = "none";
    try {
      if (Deno.build.os === "linux") {
        const candidates = [{ origin: "system", path: "libc.so.6" }];
        const what = "the C library with memfd_create";
        opened = openLibrary(what, { candidates, symbols: MEMORY_FILE_SYMBOLS }).symbols;
      }
    } catch {
      // Everything has a way without shared memory.
    }
  }
  return opened === "none" ? undefined : opened;
}

/** Memory shared with another process: an anonymous file that cannot get smaller, and its mapping. */
export interface MemoryFile extends Disposable {
  /** File descriptor in this process, by which another one finds it; -1 for memory of another process. */
  readonly fd: number;
  /** All of it; empty once it was disposed. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Whether this system has such memory. */
export function hasMemoryFiles(): boolean {
  return memoryCalls() !== undefined;
}

/**
 * Creates shared memory of zeros. It takes room as it is written.
 * @throws PosixError when the system has none to give.
 */
export function createMemoryFile(byteSize: number): MemoryFile {
  const symbols = requireCalls();
  const fd = symbols.memfd_create(cString("nereid"), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw new PosixError("memfd_create", lastError(symbols));
  try {
    if (symbols.ftruncate(fd, BigInt(byteSize)) !== 0) {
      throw new PosixError("ftruncate", lastError(symbols));
    }
    if (symbols.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) !== 0) {
      throw new PosixError("fcntl(F_ADD_SEALS)", lastError(symbols));
    }
    return mapFile(symbols, fd, { byteSize, keepsOpen: true });
  } catch (error) {
    symbols.close(fd);
    throw error;
  }
}

/**
 * Maps the memory file that process `pid` has open as `fd`.
 * @throws PosixError when it cannot be opened, RangeError when it is no memory file, or its owner could still cut it:
 * touching a page behind the end would end this process.
 */
export function openMemoryFile(pid: number, fd: number): MemoryFile {
  const symbols = requireCalls();
  const path = `/proc/${pid}/fd/${fd}`;
  const own = symbols.open(cString(path), O_RDWR_CLOEXEC, 0);
  if (own < 0) throw new PosixError(`open of ${path}`, lastError(symbols));
  try {
    const seals = symbols.fcntl(own, F_GET_SEALS, 0);
    if (seals < 0 || (seals & F_SEAL_SHRINK) === 0) {
      throw new RangeError(`Expected ${path} to be memory that is sealed against shrinking`);
    }
    const byteSize = Number(symbols.lseek(own, 0n, SEEK_END));
    if (byteSize <= 0) throw new RangeError(`Expected ${path} to have a size, got ${byteSize}`);
    return mapFile(symbols, own, { byteSize, keepsOpen: false });
  } finally {
    symbols.close(own);
  }
}

function mapFile(
  symbols: Symbols,
  fd: number,
  { byteSize, keepsOpen }: { readonly byteSize: number; readonly keepsOpen: boolean },
): MemoryFile {
  const size = BigInt(byteSize);
  const address = symbols.mmap(null, size, PROT_READ_WRITE, MAP_SHARED, fd, 0n);
  if (address === null || addressOfPointer(address) === MAP_FAILED) {
    throw new PosixError("mmap", lastError(symbols));
  }
  const unmap = () => void symbols.munmap(address, size);
  const mapping = new SharedMemoryMapping(address, {
    lead: 0,
    byteSize,
    watched: undefined,
    unmap,
  });
  let isOpen = true;
  return {
    fd: keepsOpen ? fd : -1,
    bytes: mapping.bytes,
    [Symbol.dispose]() {
      if (!isOpen) return;
      isOpen = false;
      mapping[Symbol.dispose]();
      if (keepsOpen) symbols.close(fd);
    },
  };
}

function requireCalls(): Symbols {
  const symbols = memoryCalls();
  if (symbols === undefined) throw new TypeError("Cannot share memory: this system has none");
  return symbols;
}

function lastError(symbols: Symbols): number {
  const place = symbols.__errno_location();
  return place === null ? 0 : new Deno.UnsafePointerView(place).getInt32();
}
