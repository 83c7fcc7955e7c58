import { PYTHON } from "../python.ts";

const SCRIPT = new URL("../fixtures/nereid_testing/frameworks.py", import.meta.url).pathname;

/** Path of a framework's library, fetched once for all tests; or why there is none. */
export function frameworkLibrary(
  name: string,
): { readonly path: string } | { readonly reason: string } {
  try {
    const { code, stdout } = new Deno.Command(PYTHON, { args: ["-B", SCRIPT, name] }).outputSync();
    const text = new TextDecoder().decode(stdout).trim();
    return code === 0 ? { path: text } : { reason: text || `${SCRIPT} ended with ${code}` };
  } catch (error) {
    return { reason: error instanceof Error ? error.message : String(error) };
  }
}
