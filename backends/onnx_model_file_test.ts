import assert from "node:assert/strict";
import { join } from "node:path";
import type { ModelSource } from "./backend.ts";
import { brokenFileHint, findModelFile } from "./onnx_model_file.ts";

async function withFolder(
  files: Readonly<Record<string, string>>,
  use: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "nereid-model-file-" });
  try {
    for (const [name, text] of Object.entries(files)) {
      await Deno.writeTextFile(join(folder, name), text);
    }
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function sourceIn(versionDirectory: string): ModelSource {
  return { name: "m", versionDirectory, config: { defaultModelFilename: "" } } as ModelSource;
}

Deno.test("findModelFile() names the ONNX file that has another name", async () => {
  await withFolder({ "resnet50.onnx": "", "notes.txt": "" }, async (folder) => {
    await assert.rejects(findModelFile(sourceIn(folder)), {
      code: "UNAVAILABLE",
      message: `unable to find '${join(folder, "model.onnx")}' for model instance 'm'; there is ` +
        `'resnet50.onnx': name it 'model.onnx', or set default_model_filename: "resnet50.onnx"`,
    });
  });
  await withFolder({ "a.onnx": "", "b.onnx": "" }, async (folder) => {
    await assert.rejects(findModelFile(sourceIn(folder)), { message: /for model instance 'm'$/ });
  });
  await assert.rejects(findModelFile(sourceIn("/no/such/folder")), {
    message: /for model instance 'm'$/,
  });
});

Deno.test("findModelFile() refuses pipes and devices, at which a load would wait for ever", async () => {
  await withFolder({}, async (folder) => {
    assert.ok(
      (await new Deno.Command("mkfifo", { args: [join(folder, "model.onnx")] }).output()).success,
    );
    await Deno.mkdir(join(folder, "inner", "model.onnx"), { recursive: true });
    await Deno.symlink("/dev/zero", join(folder, "inner", "model.onnx", "model.onnx"));
    for (const each of [folder, join(folder, "inner")]) {
      await assert.rejects(findModelFile(sourceIn(each)), {
        code: "UNAVAILABLE",
        message: /model\.onnx': it is no regular file$/,
      });
    }
  });
});

Deno.test("findModelFile() tells that a file may not be read", async () => {
  const { open } = Deno;
  // The superuser, who may run the tests, may read everything.
  Deno.open = () => Promise.reject(new Deno.errors.PermissionDenied("no"));
  try {
    await withFolder({ "model.onnx": "" }, async (folder) => {
      await assert.rejects(findModelFile(sourceIn(folder)), {
        code: "UNAVAILABLE",
        message: `unable to load '${join(folder, "model.onnx")}': Permission denied`,
      });
    });
  } finally {
    Deno.open = open;
  }
});

Deno.test("brokenFileHint() tells empty files, pointers of Git LFS and other content apart", async () => {
  const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  await withFolder({ empty: "", pointer, other: "no model" }, async (folder) => {
    assert.match(await brokenFileHint(join(folder, "empty")), /is empty$/);
    assert.match(await brokenFileHint(join(folder, "pointer")), /git lfs pull/);
    assert.match(await brokenFileHint(join(folder, "other")), /of 8 bytes is not an ONNX model/);
    assert.equal(await brokenFileHint(join(folder, "none")), "");
  });
});
