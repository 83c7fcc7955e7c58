import { openLibrary } from "../library.ts";

const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9n;
const SIGBUS = 7;
const SIGSEGV = 11;
const SIG_DFL = null;

const SYMBOLS = {
  // int prctl(int option, unsigned long arg2, …)
  prctl: { parameters: ["i32", "u64", "u64", "u64", "u64"], result: "i32" },
  // sighandler_t signal(int number, sighandler_t handler)
  signal: { parameters: ["i32", "pointer"], result: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

type Symbols = Deno.StaticForeignLibraryInterface<typeof SYMBOLS>;

/** The calls of the C library; undefined on other systems than Linux, and without `--allow-ffi`. */
function signalCalls(): Symbols | undefined {
  if (Deno.build.os !== "linux") return undefined;
  try {
    const candidates = [{ origin: "system", path: "libc.so.6" }];
    return openLibrary("the C library with prctl", { candidates, symbols: SYMBOLS }).symbols;
  } catch {
    return undefined;
  }
}

/**
 * Has this process killed when the one that started it ends, however that happens, and ended by the first SIGSEGV and
 * SIGBUS: the runtime, which looks for overflows of its stacks, would let the first one of `kill` pass.
 * @returns false where that cannot be had: other systems than Linux, or no `--allow-ffi`.
 */
export function prepareChildSignals(): boolean {
  const symbols = signalCalls();
  if (symbols === undefined) return false;
  symbols.signal(SIGSEGV, SIG_DFL);
  symbols.signal(SIGBUS, SIG_DFL);
  return symbols.prctl(PR_SET_PDEATHSIG, SIGKILL, 0n, 0n, 0n) === 0;
}
