import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../proto/gen/model_config_pb.ts";
import { findModelPath, TENSORFLOW_PLACE } from "./model_path.ts";

const GRAPH = "model.savedmodel/saved_model.pb";

/** A version folder with these empty files and these links to a device. */
async function withFolder(
  { files = [], devices = [] }: { readonly files?: string[]; readonly devices?: string[] },
  run: (folder: string, find: typeof findModelPath) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "nereid_model_path_" });
  try {
    await Deno.mkdir(`${folder}/model.savedmodel/variables`, { recursive: true });
    for (const file of files) await Deno.writeTextFile(`${folder}/${file}`, "");
    for (const device of devices) await Deno.symlink("/dev/null", `${folder}/${device}`);
    await run(folder, findModelPath);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function sourceIn(folder: string, defaultModelFilename = "") {
  return {
    name: "m",
    version: 1,
    modelDirectory: folder,
    versionDirectory: folder,
    config: create(ModelConfigSchema, { name: "m", defaultModelFilename }),
  };
}

Deno.test("findModelPath() takes a SavedModel with links to files and folders", async () => {
  const files = [GRAPH, "shard"];
  await withFolder({ files }, async (folder, find) => {
    await Deno.symlink("../../shard", `${folder}/model.savedmodel/variables/variables.index`);
    await Deno.symlink("variables", `${folder}/model.savedmodel/more`);
    const path = await find(sourceIn(folder), TENSORFLOW_PLACE);
    assert.equal(path, `${folder}/model.savedmodel`);
  });
});

Deno.test("findModelPath() refuses what a runtime would read without an end", async () => {
  const index = "model.savedmodel/variables/variables.index";
  for (
    const { files = [], device } of [
      { device: GRAPH },
      { files: [GRAPH], device: index },
      { device: "model.graphdef" },
      { files: ["model.xml"], device: "model.bin" },
    ]
  ) {
    await withFolder({ files, devices: [device] }, async (folder, find) => {
      const name = device.startsWith("model.savedmodel") ? "" : files[0] ?? device;
      await assert.rejects(find(sourceIn(folder, name), TENSORFLOW_PLACE), {
        code: "UNAVAILABLE",
        message: `unable to load '${folder}/${device}': it is no regular file`,
      });
    });
  }
});
