import assert from "node:assert/strict";
import { findGpuLibraries, libraryEnvironment } from "./libraries.ts";

Deno.test("findGpuLibraries() finds the folders of libraries in unpacked wheels", async () => {
  const root = await Deno.makeTempDir({ prefix: "nereid_" });
  try {
    const files = [
      "nvidia/cublas/lib/libcublas.so.12",
      "tensorrt_libs/libnvinfer.so.10",
      "onnxruntime/capi/libonnxruntime.so.1.31.1",
      "onnxruntime/capi/libonnxruntime_providers_cuda.so",
      "tensorrt/tensorrt.so",
      "numpy/core/module.cpython-311-x86_64-linux-gnu.so",
    ];
    for (const file of files) {
      await Deno.mkdir(`${root}/${file}`.replace(/\/[^/]+$/, ""), { recursive: true });
      await Deno.writeTextFile(`${root}/${file}`, "");
    }
    const found = await findGpuLibraries(root);
    assert.deepEqual(
      found.folders.map((folder) => folder.slice(root.length + 1)),
      ["nvidia/cublas/lib", "onnxruntime/capi", "tensorrt_libs"],
    );
    const env = libraryEnvironment(root, found);
    assert.equal(env["NEREID_ONNXRUNTIME_LIBRARY"], `${root}/${files[2]}`);
    assert.ok(env["LD_LIBRARY_PATH"]?.startsWith(`${root}/nvidia/cublas/lib:`));
    assert.ok(env["PYTHONPATH"]?.startsWith(root));
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("findGpuLibraries() finds nothing in a folder that is not there", async () => {
  const found = await findGpuLibraries("/nowhere");
  assert.deepEqual(found, { folders: [], onnxRuntime: undefined });
  assert.equal(libraryEnvironment("/nowhere", found)["NEREID_ONNXRUNTIME_LIBRARY"], undefined);
});
