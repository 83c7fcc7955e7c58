import { deepEqual, equal, match, ok } from "node:assert/strict";
import { KNOWN_LIBRARIES } from "../../server/cli/device_libraries.ts";
import { findWebGpuAdapters, probeOnnxRuntime, runProbe } from "../../server/cli/device_probe.ts";
import { findLibrary, findPython } from "../../server/cli/library_search.ts";
import { buildBadLibrary, missingCompiler } from "./stand_in_libraries.ts";

const reasonToSkip = missingCompiler();

Deno.test({
  name: "a library that crashes or hangs takes only the process that looked",
  ignore: reasonToSkip !== "",
  fn: async () => {
    const folder = await Deno.makeTempDir({ prefix: "nereid-bad-" });
    try {
      const path = await buildBadLibrary(folder);
      const request = { what: "library", paths: [path], form: "tensorrt" } as const;
      deepEqual(await runProbe(request), { path, version: "10.3.0" });
      const openvino = await runProbe({ ...request, form: "openvino" });
      equal(openvino.version, "2025.1.0-stand-in");
      deepEqual(await runProbe(request, { env: { BAD_LIBRARY: "crash" } }), {
        error: "it ended the process that looked: SIGSEGV",
      });
      const env = { BAD_LIBRARY: "hang" };
      deepEqual(await runProbe(request, { env, limitMs: 2000 }), { error: "no answer within 2 s" });
      const end = new AbortController();
      const pending = runProbe(request, { env, signal: end.signal });
      setTimeout(() => end.abort(), 500);
      deepEqual(await pending, { error: "it ended the process that looked: SIGKILL" });
      deepEqual(await runProbe(request, { signal: end.signal }), {
        error: "the server is exiting",
      });
      const wrong = await runProbe({ ...request, form: "tensorflow" });
      match(wrong.error!, /TF_Version/);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});

Deno.test({
  name: "a library is found in Python packages, and its path and version told",
  ignore: reasonToSkip !== "",
  fn: async () => {
    const site = await Deno.makeTempDir({ prefix: "nereid-site-" });
    try {
      await Deno.mkdir(`${site}/tensorrt_libs`);
      const path = await buildBadLibrary(`${site}/tensorrt_libs`);
      const tensorrt = KNOWN_LIBRARIES.find(({ name }) => name === "TensorRT")!;
      const found = await findLibrary(tensorrt, ["/nowhere", site]);
      deepEqual([found.path, found.version, found.reason], [path, "10.3.0", undefined]);
    } finally {
      await Deno.remove(site, { recursive: true });
    }
  },
});

Deno.test("a library that is missing, or is no library, comes with the reason and what brings it", async () => {
  const unknown = {
    ...KNOWN_LIBRARIES[0]!,
    fileNames: ["libnereid_none.so.9"],
    wheelFolders: [],
    variable: "NEREID_TEST_LIBRARY",
  };
  const missing = await findLibrary(unknown, []);
  equal(missing.reason, "libnereid_none.so.9 cannot be opened: no such file");
  equal(missing.packages, unknown.packages);
  Deno.env.set("NEREID_TEST_LIBRARY", new URL(import.meta.url).pathname);
  try {
    const wrong = await findLibrary(unknown, []);
    match(
      wrong.reason!,
      /(invalid ELF header|file too short).*\(NEREID_TEST_LIBRARY is '.*probe_test\.ts'\)$/,
    );
  } finally {
    Deno.env.delete("NEREID_TEST_LIBRARY");
  }
});

Deno.test("findPython() asks the interpreter, and tells why one cannot be asked", async () => {
  const python = await findPython("python3");
  if (typeof python !== "string") {
    match(python.version, /^3\./);
    ok(python.sitePackages.length > 0);
  }
  equal(await findPython("/nowhere/python9"), "there is no '/nowhere/python9'");
  equal(typeof await findPython("true"), "string");
});

Deno.test("ONNX Runtime and WebGPU are looked at in processes of their own", async () => {
  const ort = await probeOnnxRuntime(undefined);
  equal(ort.error, undefined);
  match(ort.version!, /^1\./);
  equal(ort.providers!["CPUExecutionProvider"], "");
  const missing = await probeOnnxRuntime("/nowhere/libonnxruntime.so");
  match(missing.error!, /^Cannot open the ONNX Runtime library; tried: /);
  const { adapters, reasons } = await findWebGpuAdapters("/nowhere/libonnxruntime.so");
  for (const source of ["navigator.gpu", "onnxruntime"] as const) {
    const hasOne = adapters.some((adapter) => adapter.source === source);
    equal(hasOne, reasons[source] === undefined, `${source}: an adapter or a reason`);
  }
});
