const FOLDERS = ["proto", "ffi", "backends", "server", "tests", "examples", "scripts", "mod.ts"];

/** Path of a linted file inside the project: what follows the last folder that is not ours. */
export function projectPath(filename: string): string {
  const path = filename.replace(/^file:\/\//, "").replaceAll("\\", "/");
  const root = new URL("../../", import.meta.url).pathname;
  if (path.startsWith(root)) return path.slice(root.length);
  // Tests of the rules name files that do not exist, relative to the project.
  const parts = path.split("/");
  const start = parts.findIndex((part) => FOLDERS.includes(part));
  return start < 0 ? path : parts.slice(start).join("/");
}

/** Generated files are exempt from every rule. */
export function isGenerated(path: string): boolean {
  return path.startsWith("proto/gen/");
}

/** Unit tests and everything under tests/ may reach across layers. */
export function isTest(path: string): boolean {
  return path.startsWith("tests/") || path.endsWith("_test.ts");
}
