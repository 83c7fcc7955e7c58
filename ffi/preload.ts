import { isAbsolute } from "node:path";
import { libraryFileFault } from "./library_file.ts";
import { cString, whileHolding } from "./memory.ts";
import { isFfiAllowed } from "./permission.ts";

/** Functions bound when they are first called; symbols not shown to other libraries. */
const RTLD_LAZY = 1;

/**
 * Loads a large library on the blocking pool, where reading and relocating it for a second holds up nobody; opening it
 * is quick then. Symbols are for its own use only. @returns whether it is loaded. Never rejects.
 */
export async function preloadLibrary(path: string): Promise<boolean> {
  if (!isAbsolute(path) || !isFfiAllowed() || Deno.build.os !== "linux") return false;
  if (libraryFileFault(path) !== undefined) return false;
  try {
    const { symbols } = Deno.dlopen("libc.so.6", {
      // void* dlopen(const char* path, int flags)
      dlopen: { parameters: ["buffer", "i32"], result: "pointer", nonblocking: true },
    });
    const text = cString(path);
    return await whileHolding([text], () => symbols.dlopen(text, RTLD_LAZY)) !== null;
  } catch {
    // Whoever opens it tells why it cannot be.
    return false;
  }
}
