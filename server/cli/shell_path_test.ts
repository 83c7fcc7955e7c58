import { equal } from "node:assert/strict";
import { delimiter } from "node:path";
import { shellPath } from "./shell_path.ts";

const NPM = ["/usr/bin", "/project/node_modules/.bin", "/lib/npm/run-script/lib/node-gyp-bin"];

function restored(folders: readonly string[], command = "exec"): string | undefined {
  const variables = new Map([["PATH", folders.join(delimiter)], ["npm_command", command]]);
  return shellPath((name) => variables.get(name));
}

Deno.test("shellPath() takes away what npx puts in front, so that python3 is that of the shell", () => {
  const own = ["/home/me/venv/bin", "/usr/bin"];
  equal(restored([...NPM, ...own]), own.join(delimiter));
  equal(restored([...NPM, ...NPM, ...own]), own.join(delimiter));
});

Deno.test("shellPath() leaves PATH alone without npx, or where it does not know npm's part", () => {
  equal(restored([...NPM, "/venv/bin"], "run-script"), undefined);
  equal(restored(["/node_modules/.bin", "/usr/bin"]), undefined);
  equal(restored(NPM), undefined);
  equal(shellPath(() => undefined), undefined);
});
