import { isFfiAllowed } from "../permission.ts";

/**
 * Ends the process without what libraries registered for its end: that runs beside their threads, and crashes when one
 * of these takes away what it needs. What listens to `unload` is run. Returns where native code may not be called.
 */
export function exitAtOnce(code: number): void {
  if (!isFfiAllowed() || Deno.build.os !== "linux") return;
  try {
    const { symbols } = Deno.dlopen("libc.so.6", {
      // void _exit(int status)
      _exit: { parameters: ["i32"], result: "void" },
    });
    globalThis.dispatchEvent(new Event("unload"));
    symbols._exit(code);
  } catch {
    // The caller ends it in the usual way.
  }
}
