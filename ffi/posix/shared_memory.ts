import type { NativePointer } from "../handle.ts";
import { BusGuard, type WatchedRange } from "./bus_guard.ts";
import { addressOf, addressOfPointer, cString, viewMemory } from "../memory.ts";
import { openLibrary } from "../library.ts";

const O_RDWR = 2;
const SEEK_END = 2;
const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;
/** Mappings begin at a multiple of this; a multiple of the page size of every system we run on. */
const PAGE_BYTE_SIZE = 65536;

const EINTR = 4;
const ENODEV = 19;
const ENOSYS = 38;
const EOPNOTSUPP = 95;

const SHARED_MEMORY_SYMBOLS = {
  // int shm_open(const char* name, int flags, mode_t mode)
  shm_open: { parameters: ["buffer", "i32", "u32"], result: "i32" },
  // off_t lseek(int fd, off_t offset, int whence)
  lseek: { parameters: ["i32", "i64", "i32"], result: "i64" },
  // void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset)
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  // int munmap(void* address, size_t size)
  munmap: { parameters: ["pointer", "usize"], result: "i32" },
  // ssize_t pread(int fd, void* buffer, size_t size, off_t offset)
  pread: { parameters: ["i32", "buffer", "usize", "i64"], result: "isize" },
  // ssize_t pwrite(int fd, const void* buffer, size_t size, off_t offset)
  pwrite: { parameters: ["i32", "buffer", "usize", "i64"], result: "isize" },
  // int posix_fallocate(int fd, off_t offset, off_t size)
  posix_fallocate: {
    parameters: ["i32", "i64", "i64"],
    result: "i32",
    nonblocking: true,
  },
  // int close(int fd)
  close: { parameters: ["i32"], result: "i32" },
  // int* __errno_location()
  __errno_location: { parameters: [], result: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

type Symbols = Deno.StaticForeignLibraryInterface<typeof SHARED_MEMORY_SYMBOLS>;

/** A call of the C library failed. */
export class PosixError extends Error {
  override readonly name = "PosixError";
  readonly errno: number;

  constructor(call: string, errno: number) {
    super(`${call} failed with error ${errno}`);
    this.errno = errno;
  }
}

let opened: Symbols | undefined;
let guard: BusGuard | undefined | "none";

/** The guard of this process, installed with its first mapping. */
function busGuard(): BusGuard | undefined {
  guard ??= BusGuard.install() ?? "none";
  return guard === "none" ? undefined : guard;
}

/** @throws LibraryNotFoundError where there is no such C library. */
function posix(): Symbols {
  // Older versions of glibc keep shm_open in a library of its own.
  const candidates = ["libc.so.6", "librt.so.1"].map((path) => ({ origin: "system", path }));
  const what = "the C library with shm_open";
  return opened ??= openLibrary(what, { candidates, symbols: SHARED_MEMORY_SYMBOLS }).symbols;
}

/** `errno` of the last blocking call. */
function lastError(symbols: Symbols): number {
  const place = symbols.__errno_location();
  return place === null ? 0 : new Deno.UnsafePointerView(place).getInt32();
}

/**
 * An open POSIX shared memory object. Other processes may change its size at any time, so every read and write that
 * goes through its file descriptor ends early where the object ends, while access to a mapping beyond the end is a fault
 * that ends the process on machines without a {@linkcode BusGuard}: look at {@linkcode byteSize} before.
 */
export class SharedMemoryObject implements Disposable {
  readonly #fd: number;
  readonly #symbols: Symbols;
  #isOpen = true;

  private constructor(fd: number, symbols: Symbols) {
    this.#fd = fd;
    this.#symbols = symbols;
  }

  /**
   * Opens an existing object for reading and writing.
   * @param key its name, such as `/input_data`.
   * @throws PosixError when there is none, or it may not be opened; LibraryNotFoundError.
   */
  static open(key: string): SharedMemoryObject {
    const symbols = posix();
    const fd = symbols.shm_open(cString(key), O_RDWR, 0);
    if (fd < 0) throw new PosixError("shm_open", lastError(symbols));
    return new SharedMemoryObject(fd, symbols);
  }

  /** Its size now. @throws PosixError for what has no size, such as a pipe. */
  get byteSize(): number {
    const end = Number(this.#symbols.lseek(this.#openFd(), 0n, SEEK_END));
    if (end < 0) throw new PosixError("lseek", lastError(this.#symbols));
    return end;
  }

  /**
   * Gives the pages memory, so that reading or writing a mapping cannot fail for the lack of it. Off the event loop.
   * @throws PosixError when there is not enough.
   */
  async reserve(offset: number, byteSize: number): Promise<void> {
    for (;;) {
      const errno = await this.#symbols.posix_fallocate(
        this.#openFd(),
        BigInt(offset),
        BigInt(byteSize),
      );
      if (errno === EINTR) continue;
      // Some file systems and kernels know no such call; they behave as they always did.
      if (errno === 0 || errno === EOPNOTSUPP || errno === ENOSYS || errno === ENODEV) return;
      throw new PosixError("posix_fallocate", errno);
    }
  }

  /** Maps a part for reading and writing. @throws PosixError, RangeError for more than a buffer can hold. */
  map(offset: number, byteSize: number): SharedMemoryMapping {
    const lead = offset % PAGE_BYTE_SIZE;
    const mappedByteSize = lead + byteSize;
    const address = this.#symbols.mmap(
      null,
      BigInt(mappedByteSize),
      PROT_READ_WRITE,
      MAP_SHARED,
      this.#openFd(),
      BigInt(offset - lead),
    );
    if (address === null || addressOfPointer(address) === MAP_FAILED) {
      throw new PosixError("mmap", lastError(this.#symbols));
    }
    const watched = busGuard()?.watch(addressOfPointer(address), mappedByteSize);
    const unmap = () => {
      // First: whatever is mapped there next is not ours to repair.
      watched?.[Symbol.dispose]();
      this.#symbols.munmap(address, BigInt(mappedByteSize));
    };
    try {
      return new SharedMemoryMapping(address, { lead, byteSize, watched, unmap });
    } catch (error) {
      unmap();
      throw error;
    }
  }

  /** Fills `into` from the object; returns the number of bytes that were there. @throws PosixError */
  read(into: Uint8Array<ArrayBuffer>, offset: number): number {
    const { pread } = this.#symbols;
    return this.#transfer(
      "pread",
      into,
      (part, done) => pread(this.#openFd(), part, BigInt(part.byteLength), BigInt(offset + done)),
    );
  }

  /** Writes `data` into the object; returns the number of bytes written. @throws PosixError */
  write(data: Uint8Array<ArrayBuffer>, offset: number): number {
    const { pwrite } = this.#symbols;
    return this.#transfer(
      "pwrite",
      data,
      (part, done) => pwrite(this.#openFd(), part, BigInt(part.byteLength), BigInt(offset + done)),
    );
  }

  /** Repeats a call that may do less than it was asked for, until it does nothing more. */
  #transfer(
    name: string,
    bytes: Uint8Array<ArrayBuffer>,
    call: (part: Uint8Array<ArrayBuffer>, done: number) => number | bigint,
  ): number {
    let done = 0;
    while (done < bytes.byteLength) {
      const count = Number(call(bytes.subarray(done), done));
      if (count > 0) done += count;
      else if (count === 0) break;
      else {
        const errno = lastError(this.#symbols);
        if (errno !== EINTR) throw new PosixError(name, errno);
      }
    }
    return done;
  }

  #openFd(): number {
    if (!this.#isOpen) throw new TypeError("Cannot use a shared memory object: it is closed");
    return this.#fd;
  }

  /** Closes the file descriptor; mappings stay. */
  [Symbol.dispose](): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#symbols.close(this.#fd);
  }
}

interface MappingParts {
  /** Bytes between the start of the mapping and the part that was asked for. */
  readonly lead: number;
  readonly byteSize: number;
  readonly watched: WatchedRange | undefined;
  readonly unmap: () => void;
}

/** A mapped part of a shared memory object. */
export class SharedMemoryMapping implements Disposable {
  /** The part, by reference; empty once it was unmapped. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly #watched: WatchedRange | undefined;
  readonly #unmap: () => void;
  #isMapped = true;

  constructor(address: NativePointer, { lead, byteSize, watched, unmap }: MappingParts) {
    this.bytes = new Uint8Array(viewMemory(address, lead + byteSize), lead, byteSize);
    this.#watched = watched;
    this.#unmap = unmap;
  }

  /** False once the object ended before a byte that was read or written: such bytes are zeros and go nowhere. */
  get isWhole(): boolean {
    return (this.#watched?.faultCount ?? 0) === 0;
  }

  /** Address of the first byte, 0n once it was unmapped. */
  get address(): bigint {
    return addressOf(this.bytes);
  }

  /** Whether `data` is a view of this mapping. */
  holds(data: Uint8Array): boolean {
    return this.#isMapped && data.buffer === this.bytes.buffer;
  }

  /** Unmaps it. Views that are still around become empty first: reading them is harmless. */
  [Symbol.dispose](): void {
    if (!this.#isMapped) return;
    this.#isMapped = false;
    this.bytes.buffer.transfer(0);
    this.#unmap();
  }
}
