import assert from "node:assert/strict";
import { findPythonBackend } from "./backend_directory.ts";

Deno.test("findPythonBackend() finds the file of a backend, and nothing outside the directory", async () => {
  const directory = await Deno.makeTempDir();
  try {
    for (const name of ["mine", "my.back-end_2", "empty", "folder/model.py", "..x"]) {
      await Deno.mkdir(`${directory}/${name}`, { recursive: true });
    }
    for (const name of ["mine", "my.back-end_2", "..x", "."]) {
      await Deno.writeTextFile(`${directory}/${name}/model.py`, "");
    }
    assert.equal(findPythonBackend(directory, "mine"), `${directory}/mine/model.py`);
    assert.equal(
      findPythonBackend(directory, "my.back-end_2"),
      `${directory}/my.back-end_2/model.py`,
    );
    for (const name of ["empty", "folder", "none", ".", "..", "..x", "", "mine/../mine", "a\0b"]) {
      assert.equal(findPythonBackend(directory, name), undefined, name);
    }
    assert.equal(findPythonBackend("", "mine"), undefined);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});
