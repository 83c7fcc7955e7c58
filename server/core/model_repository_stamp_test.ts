import assert from "node:assert/strict";
import { directoryStamp, filesStamp, readModelFiles } from "./model_repository_stamp.ts";

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

Deno.test("readModelFiles() leaves out what editors and other programs write", async () => {
  const root = await Deno.makeTempDir();
  try {
    const write = async (path: string, text: string) => {
      await Deno.mkdir(`${root}/${path}`.replace(/\/[^/]*$/, ""), { recursive: true });
      await Deno.writeTextFile(`${root}/${path}`, text);
    };
    await write("1/model.onnx", "a");
    await write("config.pbtxt", 'label_filename: "names/labels.txt"');
    await write("names/labels.txt", "cat");
    await write("notes/readme.md", "x");
    const read = (isRelated = true) => readModelFiles(root, { isRelated });
    const stamp = async (isRelated = true) => filesStamp(await read(isRelated));
    const before = await stamp();
    const noise = [".config.pbtxt.swp", "config.pbtxt~", "4913", "x.tmp", "#a#", "1/.hidden"];
    for (const path of [...noise, "1/__pycache__/model.pyc", "notes/more.md"]) {
      await write(path, "x");
      assert.equal(await stamp(), before, path);
    }
    const all = await stamp(false);
    await write("notes/readme.md", "longer");
    assert.equal(await stamp(), before);
    assert.notEqual(await stamp(false), all);
    const first = await read();
    await write("names/labels.txt", "tiger");
    const second = await read();
    assert.notEqual(second.others, first.others);
    assert.equal(second.config, first.config);
    await write("config.pbtxt", 'label_filename: "names/labels.txt" # more');
    const third = await read();
    assert.notEqual(third.config, second.config);
    assert.deepEqual(third.versions, second.versions);
    await write("2/model.onnx", "b");
    assert.deepEqual([...(await read()).versions.keys()], [1, 2]);
    assert.equal((await read()).versions.get(1), first.versions.get(1));
    await Deno.symlink(`${root}/nowhere`, `${root}/1/data`);
    assert.match((await read()).versions.get(1)!, /data missing/);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});
