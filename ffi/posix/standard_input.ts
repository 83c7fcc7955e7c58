import { openLibrary } from "../library.ts";
import { cString } from "../memory.ts";

const O_RDONLY = 0;
const LIBRARIES: Readonly<Record<string, string>> = {
  linux: "libc.so.6",
  darwin: "libSystem.B.dylib",
};

const SYMBOLS = {
  // int open(const char* path, int flags)
  open: { parameters: ["buffer", "i32"], result: "i32" },
  // int dup2(int old, int new)
  dup2: { parameters: ["i32", "i32"], result: "i32" },
  // int close(int fd)
  close: { parameters: ["i32"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Gives this process an empty standard input in place of its own. False where that cannot be done. */
export function emptyStandardInput(): boolean {
  const path = LIBRARIES[Deno.build.os];
  if (path === undefined) return false;
  try {
    const candidates = [{ origin: "system", path }];
    const { symbols } = openLibrary("the C library with dup2", { candidates, symbols: SYMBOLS });
    const file = symbols.open(cString("/dev/null"), O_RDONLY);
    if (file < 0) return false;
    const result = symbols.dup2(file, 0);
    symbols.close(file);
    return result === 0;
  } catch {
    return false;
  }
}
