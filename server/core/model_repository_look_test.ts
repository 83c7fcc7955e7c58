import assert from "node:assert/strict";
import { lookAtFolders } from "./model_repository_look.ts";

/** Removes `path` as soon as somebody has seen it in its folder and wants to look into it. */
async function whileItGoes<T>(path: string, use: () => Promise<T>): Promise<T> {
  const { readDir } = Deno;
  Deno.readDir = (folder) => {
    if (folder === path) Deno.removeSync(path, { recursive: true });
    return readDir(folder);
  };
  try {
    return await use();
  } finally {
    Deno.readDir = readDir;
  }
}

async function withModel(use: (root: string) => Promise<void>): Promise<void> {
  const root = await Deno.makeTempDir({ prefix: "nereid-look-" });
  try {
    await Deno.mkdir(`${root}/m/1`, { recursive: true });
    await use(root);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

Deno.test("lookAtFolders() takes a model that goes while it is looked at for one that is gone", async () => {
  await withModel(async (root) => {
    const look = () => lookAtFolders([root], (_, name) => name);
    assert.deepEqual([...(await look()).models.keys()], ["m"]);
    const { models, lost } = await whileItGoes(`${root}/m`, look);
    assert.deepEqual([models.size, lost.size], [0, 0]);
  });
});

Deno.test("lookAtFolders() takes a version that goes while it is looked at for a change", async () => {
  await withModel(async (root) => {
    const look = () => lookAtFolders([root], (_, name) => name);
    const before = (await look()).models.get("m");
    const during = (await whileItGoes(`${root}/m/1`, look)).models.get("m");
    assert.equal(during?.reason, "");
    assert.equal(typeof during?.stamp, "string");
    assert.notEqual(during?.stamp, before?.stamp);
  });
});
