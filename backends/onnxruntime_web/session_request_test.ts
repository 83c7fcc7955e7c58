import assert from "node:assert/strict";
import { checkExternalFile } from "./session_request.ts";

/** A folder `model` with `model.onnx`, `weights.bin` and a link to what is beside it; `check` looks at one of its files. */
async function withFolder(
  run: (root: string, check: (file: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  const root = await Deno.makeTempDir({ prefix: "nereid_weights_" });
  try {
    await Deno.mkdir(`${root}/model/inner`, { recursive: true });
    await Deno.writeTextFile(`${root}/secret.bin`, "secret");
    await Deno.writeTextFile(`${root}/model/model.onnx`, "");
    await Deno.writeTextFile(`${root}/model/weights.bin`, "");
    await Deno.writeTextFile(`${root}/model/inner/weights.bin`, "");
    await Deno.symlink("weights.bin", `${root}/model/link.bin`);
    await Deno.symlink("../secret.bin", `${root}/model/away.bin`);
    await run(root, (file) => checkExternalFile(file, `${root}/model/model.onnx`, "m"));
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

Deno.test("checkExternalFile() lets files in the folder of the model pass", async () => {
  await withFolder(async (root, check) => {
    for (const file of ["weights.bin", "inner/weights.bin", "link.bin", "missing"]) {
      await check(file);
    }
    await Deno.mkdir(`${root}/served`);
    await Deno.symlink("../model/model.onnx", `${root}/served/model.onnx`);
    await Deno.symlink("../model/weights.bin", `${root}/served/weights.bin`);
    await checkExternalFile("weights.bin", `${root}/served/model.onnx`, "m");
  });
});

Deno.test("checkExternalFile() refuses files outside, also behind links", async () => {
  await withFolder(async (root, check) => {
    const outside = "model 'm' keeps weights in '";
    for (const file of ["/etc/passwd", "../secret.bin", "inner/../../secret.bin"]) {
      const message = `${outside}${file}', which is outside of its folder`;
      await assert.rejects(check(file), { code: "INVALID_ARG", message });
    }
    const real = await Deno.realPath(`${root}/secret.bin`);
    const message = `${outside}away.bin', which is outside of its folder: '${real}'`;
    await assert.rejects(check("away.bin"), { code: "INVALID_ARG", message });
  });
});

Deno.test("checkExternalFile() refuses what is no file", async () => {
  await withFolder(async (root, check) => {
    await assert.rejects(check("inner"), /keeps weights in 'inner', which is no regular file/);
    await Deno.symlink("/dev/null", `${root}/model/device`);
    await assert.rejects(check("device"), /keeps weights in 'device', which is no regular file/);
  });
});
