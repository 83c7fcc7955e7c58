import { isFfiAllowed } from "../permission.ts";

const M_TRIM_THRESHOLD = -1;
const M_MMAP_THRESHOLD = -3;
/** Blocks from this size on get pages of their own, which return to the system when they are freed. */
const LARGE_BLOCK_BYTE_SIZE = 4 * 1024 * 1024;

const MALLOC_SYMBOLS = {
  // int mallopt(int parameter, int value)
  mallopt: { parameters: ["i32", "i32"], result: "i32", optional: true },
  // int malloc_trim(size_t pad)
  malloc_trim: { parameters: ["usize"], result: "i32", nonblocking: true, optional: true },
} as const satisfies Deno.ForeignLibraryInterface;

/** The C allocator's settings; absent calls are not available on this system. */
export interface NativeAllocator {
  /** Gives free memory back to the system, on the blocking pool. */
  trim(): Promise<void>;
}

/**
 * Makes the C allocator (glibc's) return the memory of large blocks. Left to itself it learns from the first freed
 * model to keep blocks of that size, once per thread that ever loaded one, and a server that loads and unloads models
 * grows. Does nothing where there is no such allocator.
 */
export function tuneNativeAllocator(): NativeAllocator {
  const symbols = openSymbols();
  symbols?.mallopt?.(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTE_SIZE);
  symbols?.mallopt?.(M_TRIM_THRESHOLD, LARGE_BLOCK_BYTE_SIZE);
  return {
    async trim() {
      await symbols?.malloc_trim?.(0n);
    },
  };
}

function openSymbols() {
  if (Deno.build.os !== "linux" || !isFfiAllowed()) return undefined;
  try {
    return Deno.dlopen("libc.so.6", MALLOC_SYMBOLS).symbols;
  } catch {
    // Another C library (musl): its allocator has no such settings.
    return undefined;
  }
}
