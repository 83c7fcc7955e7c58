import { deepEqual, equal, match, ok } from "node:assert/strict";
import { buildStandIns, missingCompiler } from "../devices/stand_in_libraries.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;

async function devices(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `${PROJECT}mod.ts`, "devices", ...args],
    env: { NO_COLOR: "1", ...env },
    signal: AbortSignal.timeout(120_000),
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test("devices lists what is here, and for what is missing the reason and what brings it", async () => {
  const { code, stdout } = await devices([]);
  equal(code, 0);
  match(stdout, /^Devices\n {2}CPU +\d+ × .+, \d+ MiB\n/);
  match(stdout, /\nLibraries\n {2}ONNX Runtime +1\.\d+\.\d+ {2}\//);
  match(stdout, /\nBackends\n {2}onnxruntime +.*CPU \(KIND_CPU\)/);
  const { stdout: text } = await devices([
    "--json",
    "--backend-config=python,python-executable=/no",
  ]);
  const json = JSON.parse(text);
  deepEqual(Object.keys(json), ["cpu", "driver", "gpus", "webgpu", "libraries", "backends"]);
  const python = json.libraries.find((library: { name: string }) => library.name === "Python");
  deepEqual([python.found, python.reason], [false, "there is no '/no'"]);
  for (const library of json.libraries) {
    ok(library.found || (library.reason !== "" && library.packages !== ""), library.name);
  }
});

Deno.test("devices lists what it may look at, and asks nobody for the rest", async () => {
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", "--allow-read", "--allow-env", `${PROJECT}mod.ts`, "devices"],
    env: { NO_COLOR: "1" },
    signal: AbortSignal.timeout(60_000),
  }).output();
  const text = new TextDecoder().decode(stdout);
  equal(code, 0);
  match(text, /\n {2}NVIDIA driver +Native libraries may not be opened here \(--allow-ffi\)\n/);
  match(text, /\n {2}Python +missing: it may not be started here \(--allow-run\)\n/);
  match(
    text,
    /\n {2}TensorRT +missing: no process for a look may be started here \(--allow-run\)\n/,
  );
  match(text, /\n {2}identity +CPU \(KIND_CPU\)\n/);
});

Deno.test("devices explains itself and refuses what it does not know", async () => {
  const help = await devices(["--help"]);
  equal(help.code, 0);
  match(help.stdout, /^Usage: nereid devices \[--json\]/);
  const wrong = await devices(["--jsn"]);
  equal(wrong.code, 2);
  match(wrong.stderr, /unrecognized option '--jsn'; did you mean '--json'\?/);
});

const reasonToSkip = missingCompiler();

Deno.test({
  name: "devices lists GPUs, and which are too old",
  ignore: reasonToSkip !== "",
  fn: async () => {
    await using libraries = await buildStandIns();
    const { code, stdout } = await devices(["--min-supported-compute-capability=8.9"], {
      LD_LIBRARY_PATH: libraries.folder,
    });
    equal(code, 0);
    match(stdout, /\n {2}NVIDIA driver +555\.42\.01, CUDA 12\.5\n/);
    match(
      stdout,
      /\n {2}GPU 0 +Stand-in GPU 0, compute capability 9\.0, 8192 MiB, 2048 MiB in use, GPU-0/,
    );
    match(stdout, /\n +not used: its compute capability 8\.6 is below the minimum of 8\.9/);
    match(stdout, /\n {2}identity +CUDA \(KIND_GPU, devices 0\), CPU \(KIND_CPU\)\n/);
  },
});

Deno.test({
  name: "devices says why there is no GPU although there is a driver",
  ignore: reasonToSkip !== "",
  fn: async () => {
    await using libraries = await buildStandIns();
    const env = {
      LD_LIBRARY_PATH: libraries.folder,
      NVML_STAND_IN_DEVICES: "0",
      CUDA_VISIBLE_DEVICES: "none",
    };
    const reason = "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES is 'none')";
    const { stdout } = await devices([], env);
    match(stdout, /\n {2}NVIDIA driver +555\.42\.01, CUDA 12\.5\n {2}GPU +none: the CUDA driver /);
    const { stdout: json } = await devices(["--json"], env);
    const { driver, gpus } = JSON.parse(json);
    deepEqual([driver.version, driver.reason, gpus], ["555.42.01", reason, []]);
  },
});
