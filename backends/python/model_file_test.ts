import { create } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { findPythonFile } from "./model_file.ts";

Deno.test("findPythonFile() finds a model's own file, or the one its backend shares", async () => {
  const root = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${root}/m/3`, { recursive: true });
    await Deno.writeTextFile(`${root}/m/3/other.py`, "");
    await Deno.writeTextFile(`${root}/model.py`, "");
    const source = (defaultModelFilename: string) => ({
      name: "m",
      version: 3,
      modelDirectory: `${root}/m`,
      versionDirectory: `${root}/m/3`,
      config: create(ModelConfigSchema, { defaultModelFilename }),
    });
    assert.deepEqual(await findPythonFile(source("other.py")), {
      path: `${root}/m/3/other.py`,
      module: "3.other",
    });
    assert.deepEqual(await findPythonFile(source(""), `${root}/model.py`), {
      path: `${root}/model.py`,
      module: "model",
    });
    await assert.rejects(
      findPythonFile(source("")),
      /Python model file not found in '.*model\.py'/,
    );
    await assert.rejects(findPythonFile(source("x.txt")), /must end with '\.py'/);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});
