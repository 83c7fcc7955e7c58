import assert from "node:assert/strict";
import { RUNTIME_FILES } from "./runtime_files.ts";

Deno.test("RUNTIME_FILES has every file of runtime/, as it is", async () => {
  const folder = new URL("./runtime/", import.meta.url);
  const names = (await Array.fromAsync(Deno.readDir(folder))).map(({ name }) => name)
    .filter((name) => name.endsWith(".py"));
  assert.deepEqual(Object.keys(RUNTIME_FILES).sort(), names.sort());
  for (const name of names) {
    assert.equal(RUNTIME_FILES[name], await Deno.readTextFile(new URL(name, folder)), name);
  }
});
