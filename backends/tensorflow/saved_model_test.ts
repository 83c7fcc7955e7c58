import assert from "node:assert/strict";
import { doublingModel } from "../../tests/fixtures/tensorflow_graph.ts";
import { ServerError } from "../../proto/status.ts";
import { readSavedModel } from "./saved_model.ts";

async function withModel(
  bytes: Uint8Array,
  run: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "nereid_" });
  try {
    await Deno.writeFile(`${folder}/saved_model.pb`, bytes);
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("readSavedModel() reads tags, signatures and their tensors", async () => {
  await withModel(doublingModel({ signature: "twice", tags: ["serve", "x"] }), async (folder) => {
    const [graph] = await readSavedModel(folder, "m");
    assert.deepEqual(graph!.tags, ["serve", "x"]);
    assert.equal(graph!.restores, false);
    const { inputs, outputs } = graph!.signatures.get("twice")!;
    assert.deepEqual(inputs, [{ name: "INPUT0", tensorName: "x:0", dataType: 1, dims: [-1, 4] }]);
    assert.deepEqual(outputs, [{ name: "OUTPUT0", tensorName: "y:0", dataType: 1, dims: [-1, 4] }]);
  });
});

Deno.test("readSavedModel() fails with a clear text wherever the file is cut or damaged", async () => {
  const whole = doublingModel();
  const damaged = Array.from({ length: whole.length }, (_, index) => {
    const bytes = whole.slice();
    bytes[index] = bytes[index]! ^ 0xff;
    return bytes;
  });
  const cut = Array.from({ length: whole.length }, (_, length) => whole.subarray(0, length));
  await withModel(whole, async (folder) => {
    for (const bytes of [...cut, ...damaged]) {
      await Deno.writeFile(`${folder}/saved_model.pb`, bytes);
      try {
        await readSavedModel(folder, "m");
      } catch (error) {
        assert.ok(error instanceof ServerError, String(error));
        assert.match(error.message, /saved_model\.pb' of \d+ bytes is cut off, or no SavedModel/);
      }
    }
  });
});

Deno.test("readSavedModel() tells that a graph as text is not read", async () => {
  const folder = await Deno.makeTempDir({ prefix: "nereid_" });
  try {
    await assert.rejects(
      readSavedModel(folder, "m"),
      /holds its graph as text.*tf\.saved_model\.save/,
    );
  } finally {
    await Deno.remove(folder);
  }
});
