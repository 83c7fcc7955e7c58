import type { NativePointer } from "../handle.ts";
import { openLibrary } from "../library.ts";
import { addressOfPointer, pointerAt, viewMemory } from "../memory.ts";

const SIGBUS = 7;
const PROT_READ_WRITE = 3;
const PROT_READ_EXECUTE = 5;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;
const CODE_BYTE_SIZE = 4096;
/** Number of `rt_sigaction`, and the size of its mask. */
const SYS_RT_SIGACTION = 13n;
const MASK_BYTE_SIZE = 8n;
const PAGE_BYTE_SIZE = 4096n;

/** `struct sigaction`: the handler, 128 bytes of mask, the flags, and what the C library adds. */
const ACTION_BYTE_SIZE = 152;
const ACTION_FLAGS_OFFSET = 136;
const SA_SIGINFO = 0x4;
const SA_ONSTACK = 0x0800_0000;

/** The table: a count, the kernel's form of the action before the guard (32 bytes), and from here on the ranges. */
const ACTION_BEFORE_OFFSET = 8n;
const RANGES_OFFSET = 64;
/** Start, end, and number of faults: 8 bytes each. */
const RANGE_WORDS = 3;
const MAX_RANGES = 8192;
const TABLE_BYTE_SIZE = RANGES_OFFSET + MAX_RANGES * RANGE_WORDS * 8;

const SYMBOLS = {
  // void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset)
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  // int mprotect(void* address, size_t size, int protection)
  mprotect: { parameters: ["pointer", "usize", "i32"], result: "i32" },
  // int munmap(void* address, size_t size)
  munmap: { parameters: ["pointer", "usize"], result: "i32" },
  // int sigaction(int signal, const struct sigaction* action, struct sigaction* before)
  sigaction: { parameters: ["i32", "buffer", "pointer"], result: "i32" },
  // long syscall(long number, ...)
  syscall: { parameters: ["i64", "i64", "pointer", "pointer", "u64"], result: "i64" },
} as const satisfies Deno.ForeignLibraryInterface;

type Symbols = Deno.StaticForeignLibraryInterface<typeof SYMBOLS>;

/** A watched range of memory. */
export interface WatchedRange extends Disposable {
  /** Pages that were gone when they were touched, and are empty pages of this process since. */
  readonly faultCount: number;
}

/**
 * Keeps the process alive when it touches mapped memory whose file another process has cut: the system's signal for
 * that (SIGBUS) would end it. In watched ranges the missing page becomes one of zeros, and the range counts it.
 * Looking at the size before each use is not enough, as a model reads its input for longer than that takes.
 *
 * The handler is machine code, since no JavaScript can run on whatever thread is hit. It makes two system calls at most
 * and touches nothing but its table, so that it may run at any point of any thread. What is no fault in a watched range
 * goes on to the action that was there before.
 */
export class BusGuard {
  readonly #table: BigUint64Array<ArrayBuffer>;
  readonly #free: number[] = [];
  #count = 0;

  private constructor(table: BigUint64Array<ArrayBuffer>) {
    this.#table = table;
  }

  /** Installs the handler for this process; undefined where there is none for this kind of machine. */
  static install(): BusGuard | undefined {
    if (Deno.build.os !== "linux" || Deno.build.arch !== "x86_64") return undefined;
    const candidates = [{ origin: "system", path: "libc.so.6" }];
    const { symbols } = openLibrary("the C library", { candidates, symbols: SYMBOLS });
    const table = mapPages(symbols, TABLE_BYTE_SIZE);
    const code = mapPages(symbols, CODE_BYTE_SIZE);
    if (table === undefined || code === undefined) return undefined;
    new Uint8Array(viewMemory(code, CODE_BYTE_SIZE)).set(handlerCode(addressOfPointer(table)));
    // Systems that are hardened may refuse this.
    if (symbols.mprotect(code, BigInt(CODE_BYTE_SIZE), PROT_READ_EXECUTE) !== 0) return undefined;
    const before = pointerAt(addressOfPointer(table) + ACTION_BEFORE_OFFSET);
    const signal = BigInt(SIGBUS);
    if (symbols.syscall(SYS_RT_SIGACTION, signal, null, before, MASK_BYTE_SIZE) !== 0n) {
      return undefined;
    }
    const action = new DataView(new ArrayBuffer(ACTION_BYTE_SIZE));
    action.setBigUint64(0, addressOfPointer(code), true);
    action.setInt32(ACTION_FLAGS_OFFSET, SA_SIGINFO | SA_ONSTACK, true);
    if (symbols.sigaction(SIGBUS, action, null) !== 0) return undefined;
    return new BusGuard(new BigUint64Array(viewMemory(table, TABLE_BYTE_SIZE)));
  }

  /** Watches a mapping of `byteSize` bytes; undefined when too many are watched already. */
  watch(start: bigint, byteSize: number): WatchedRange | undefined {
    const index = this.#free.pop() ?? this.#count;
    if (index >= MAX_RANGES) return undefined;
    const table = this.#table;
    const at = RANGES_OFFSET / 8 + index * RANGE_WORDS;
    const end = start + BigInt(byteSize) + PAGE_BYTE_SIZE - 1n;
    // The end comes last and goes first: a handler on another thread never sees half of a range.
    Atomics.store(table, at, start);
    Atomics.store(table, at + 2, 0n);
    Atomics.store(table, at + 1, end - end % PAGE_BYTE_SIZE);
    if (index === this.#count) Atomics.store(table, 0, BigInt(++this.#count));
    const free = this.#free;
    let isWatched = true;
    return {
      get faultCount() {
        return isWatched ? Number(Atomics.load(table, at + 2)) : 0;
      },
      [Symbol.dispose]() {
        if (!isWatched) return;
        isWatched = false;
        Atomics.store(table, at + 1, 0n);
        free.push(index);
      },
    };
  }
}

function mapPages(symbols: Symbols, byteSize: number): NativePointer | undefined {
  const size = BigInt(byteSize);
  const pages = symbols.mmap(null, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0n);
  if (pages === null || addressOfPointer(pages) === MAP_FAILED) return undefined;
  return pages;
}

/** `void handler(int signal, siginfo_t* info, void* context)` for x86-64; uses no memory but the table. */
function handlerCode(table: bigint): Uint8Array {
  const address = [...new Uint8Array(BigUint64Array.of(table).buffer)];
  return new Uint8Array([
    [0x83, 0x7e, 0x08, 0x00], //                       cmp    dword ptr [rsi+8], 0
    [0x7e, 0x64], //                                   jle    unknown           sent by a process: no address
    [0x49, 0xba, ...address], //                       movabs r10, table
    [0x4c, 0x8b, 0x46, 0x10], //                       mov    r8, [rsi+16]      the address that was touched
    [0x49, 0x8b, 0x0a], //                             mov    rcx, [r10]        number of ranges
    [0x49, 0x8d, 0x52, RANGES_OFFSET], //              lea    rdx, [r10+64]     the first range
    [0x48, 0x85, 0xc9], //                      next:  test   rcx, rcx
    [0x74, 0x4a], //                                   je     unknown
    [0x4c, 0x3b, 0x02], //                             cmp    r8, [rdx]
    [0x72, 0x06], //                                   jb     skip
    [0x4c, 0x3b, 0x42, 0x08], //                       cmp    r8, [rdx+8]
    [0x72, 0x09], //                                   jb     found
    [0x48, 0x83, 0xc2, 0x18], //                skip:  add    rdx, 24
    [0x48, 0xff, 0xc9], //                             dec    rcx
    [0xeb, 0xe7], //                                   jmp    next
    [0xf0, 0x48, 0xff, 0x42, 0x10], //          found: lock inc qword ptr [rdx+16]
    [0x4c, 0x89, 0xc7], //                             mov    rdi, r8
    [0x48, 0x81, 0xe7, 0x00, 0xf0, 0xff, 0xff], //     and    rdi, -4096        its page
    [0xbe, 0x00, 0x10, 0x00, 0x00], //                 mov    esi, 4096
    [0xba, 0x03, 0x00, 0x00, 0x00], //                 mov    edx, PROT_READ | PROT_WRITE
    [0x41, 0xba, 0x32, 0x00, 0x00, 0x00], //           mov    r10d, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS
    [0x49, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff], //     mov    r8, -1
    [0x45, 0x31, 0xc9], //                             xor    r9d, r9d
    [0xb8, 0x09, 0x00, 0x00, 0x00], //                 mov    eax, 9            mmap
    [0x0f, 0x05], //                                   syscall
    [0x48, 0x85, 0xc0], //                             test   rax, rax
    [0x78, 0x01], //                                   js     unknown
    [0xc3], //                                         ret                      and touch it again
    [0xbf, 0x07, 0x00, 0x00, 0x00], //        unknown: mov    edi, SIGBUS
    [0x48, 0xbe, ...address], //                       movabs rsi, table
    [0x48, 0x83, 0xc6, 0x08], //                       add    rsi, 8            the action before
    [0x31, 0xd2], //                                   xor    edx, edx
    [0x41, 0xba, 0x08, 0x00, 0x00, 0x00], //           mov    r10d, 8
    [0xb8, 0x0d, 0x00, 0x00, 0x00], //                 mov    eax, 13           rt_sigaction
    [0x0f, 0x05], //                                   syscall
    [0xc3], //                                         ret                      and to it, as without a guard
  ].flat());
}
