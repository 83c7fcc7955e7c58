import assert from "node:assert/strict";
import { directoryStamp } from "./model_repository_stamp.ts";

Deno.test("directoryStamp() differs with every change below the folder", async () => {
  const root = await Deno.makeTempDir();
  try {
    const stamps = new Set<string | undefined>();
    const note = async () => void stamps.add(await directoryStamp(root));
    await Deno.mkdir(`${root}/1/model.onnx`, { recursive: true });
    await note();
    await note();
    assert.equal(stamps.size, 1);
    await Deno.writeTextFile(`${root}/1/model.onnx/weights`, "a");
    await note();
    await Deno.writeTextFile(`${root}/1/model.onnx/weights`, "ab");
    await note();
    await Deno.utime(`${root}/1/model.onnx/weights`, 1, 1);
    await note();
    await Deno.rename(`${root}/1`, `${root}/2`);
    await note();
    assert.equal(stamps.size, 5);
    await Deno.symlink(root, `${root}/2/loop`);
    assert.equal(typeof await directoryStamp(root), "string");
    assert.equal(await directoryStamp(`${root}/nowhere`), undefined);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});
