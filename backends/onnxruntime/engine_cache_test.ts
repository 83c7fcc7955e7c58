import assert from "node:assert/strict";
import type { ProviderSettings } from "../../ffi/onnxruntime/mod.ts";
import { keepEngines } from "./engine_cache.ts";

const SURROUNDINGS = { libraries: ["1.30.0", "TensorRT 10.3.0"], device: "GPU 8.6" };

function tensorRt(options: Readonly<Record<string, string>> = {}): ProviderSettings {
  return { name: "TensorRT", options };
}

/** Runs with a version folder of one model and a folder for engines. */
async function withFolders(
  run: (folders: { readonly version: string; readonly cache: string }) => Promise<void>,
): Promise<void> {
  const root = await Deno.makeTempDir();
  try {
    const version = `${root}/1`;
    await Deno.mkdir(version);
    await Deno.writeTextFile(`${version}/model.onnx`, "model");
    await run({ version, cache: `${root}/cache` });
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

Deno.test("keepEngines() keys the folder by model, libraries, device and options", () =>
  withFolders(async ({ version, cache }) => {
    const settings = new Map([["engine-cache-directory", cache]]);
    const folderOf = async (
      options: Record<string, string> = {},
      surroundings = SURROUNDINGS,
    ) => {
      const kept = await keepEngines(tensorRt(options), {
        versionDirectory: version,
        settings,
        surroundings,
      });
      assert.equal(kept.options["trt_engine_cache_enable"], "1");
      const folder = kept.options["trt_engine_cache_path"] ?? "";
      assert.ok((await Deno.stat(folder)).isDirectory);
      assert.equal(kept.options["trt_timing_cache_path"], folder);
      return folder;
    };
    const first = await folderOf();
    assert.ok(first.startsWith(`${cache}/`));
    assert.equal(await folderOf(), first);
    // The number of a device is no property of it.
    assert.equal(await folderOf({ ["device_id"]: "3" }), first);
    const others = [
      await folderOf({ ["trt_fp16_enable"]: "1" }),
      await folderOf({}, { ...SURROUNDINGS, device: "GPU 9.0" }),
      await folderOf({}, { ...SURROUNDINGS, libraries: ["1.31.0", "TensorRT 10.3.0"] }),
    ];
    await Deno.writeTextFile(`${version}/weights.bin`, "weights");
    others.push(await folderOf());
    assert.equal(new Set([first, ...others]).size, 5);
  }));

Deno.test("keepEngines() leaves models alone that say themselves where their engines go", () =>
  withFolders(async ({ version, cache }) => {
    const settings = new Map([["engine-cache-directory", cache]]);
    const own = [{ ["trt_engine_cache_path"]: "/engines" }, {
      ["trt_engine_cache_enable"]: "false",
    }];
    for (const options of own) {
      const provider = tensorRt(options);
      const parts = { versionDirectory: version, settings, surroundings: SURROUNDINGS };
      assert.equal(await keepEngines(provider, parts), provider);
    }
  }));
