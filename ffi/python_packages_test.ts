import assert from "node:assert/strict";
import { pythonPackageFolders } from "./python_packages.ts";

Deno.test("pythonPackageFolders() lists the environment in use before the user's and the system's", async () => {
  const root = await Deno.makeTempDir();
  try {
    const inUse = `${root}/env/lib/python3.11/site-packages`;
    const users = `${root}/home/.local/lib/python3.9/site-packages`;
    for (const folder of [inUse, users]) await Deno.mkdir(folder, { recursive: true });
    const variables: Record<string, string> = { VIRTUAL_ENV: `${root}/env`, HOME: `${root}/home` };
    const found = pythonPackageFolders((name) => variables[name]);
    assert.deepEqual(found.slice(0, 2), [inUse, users]);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("pythonPackageFolders() finds the environment of the first python3 in PATH", async () => {
  const root = await Deno.makeTempDir();
  try {
    const folder = `${root}/lib/python3.12/site-packages`;
    await Deno.mkdir(folder, { recursive: true });
    await Deno.mkdir(`${root}/bin`);
    await Deno.writeTextFile(`${root}/bin/python3`, "");
    const variables: Record<string, string> = { PATH: `/nowhere::${root}/bin` };
    assert.equal(pythonPackageFolders((name) => variables[name])[0], folder);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});
