/** What stands in texts where native libraries may not be opened. */
export const FFI_REFUSAL = "native libraries may not be opened here (--allow-ffi)";

/** Whether native code may be called; calling it without the permission would ask somebody at a terminal. */
export function isFfiAllowed(): boolean {
  return Deno.permissions.querySync({ name: "ffi" }).state === "granted";
}
