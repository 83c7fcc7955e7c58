import assert from "node:assert/strict";
import { statPath } from "./stat_path.ts";

Deno.test("statPath() tells what is there, and nothing where nothing can be", async () => {
  const path = await Deno.makeTempFile();
  try {
    assert.equal((await statPath(path))?.isFile, true);
    assert.equal(await statPath(`${path}/inner`), undefined);
  } finally {
    await Deno.remove(path);
  }
  assert.equal(await statPath(path), undefined);
  await assert.rejects(statPath("/" + "x".repeat(300)), { code: "UNAVAILABLE" });
});
