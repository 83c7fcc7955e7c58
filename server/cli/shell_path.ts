import { delimiter } from "node:path";

/** The last folder that npm puts in front of the PATH that it was given itself. */
const LAST_OF_NPM = "node-gyp-bin";

/**
 * Under `npx` a name such as `python3` means what it means in the shell that called it: npx puts folders in front of
 * PATH, its own and that of a Deno it found, and with these often another Python comes first.
 */
export function restoreShellPath(): void {
  const names = ["PATH", "npm_command"];
  // Nobody at a terminal is asked for this.
  const isGranted = names.every((variable) =>
    Deno.permissions.querySync({ name: "env", variable }).state === "granted"
  );
  if (!isGranted) return;
  const path = shellPath((name) => Deno.env.get(name));
  if (path !== undefined) Deno.env.set("PATH", path);
}

/** PATH of the shell that called `npx`; undefined when there is nothing to restore. */
export function shellPath(environment: (name: string) => string | undefined): string | undefined {
  if (environment("npm_command") !== "exec") return undefined;
  const folders = (environment("PATH") ?? "").split(delimiter);
  const last = folders.findLastIndex((folder) => /[^/\\]+$/.exec(folder)?.[0] === LAST_OF_NPM);
  const rest = folders.slice(last + 1).join(delimiter);
  return last < 0 || rest === "" ? undefined : rest;
}
