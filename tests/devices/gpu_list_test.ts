import { deepEqual, equal, match } from "node:assert/strict";
import { MachineDevices } from "../../backends/device.ts";
import type { WebGpuList } from "../../backends/device_list.ts";
import { Nvml } from "../../ffi/nvml/nvml.ts";
import { buildStandIns, missingCompiler, type StandInLibraries } from "./stand_in_libraries.ts";

const VARIABLES = [
  "NVML_STAND_IN_DEVICES",
  "NVML_STAND_IN_FAIL",
  "NVML_STAND_IN_REPORT",
  "CUDA_STAND_IN_INIT",
  "CUDA_VISIBLE_DEVICES",
];

const noWebGpu = (): Promise<WebGpuList> => Promise.resolve({ adapters: [], reasons: {} });

const reasonToSkip = missingCompiler();

function gpuTest(
  name: string,
  body: (libraries: StandInLibraries) => Promise<void>,
): void {
  Deno.test({
    name: reasonToSkip === "" ? name : `${name} (skipped: ${reasonToSkip})`,
    ignore: reasonToSkip !== "",
    fn: async () => {
      await using libraries = await buildStandIns();
      try {
        await body(libraries);
      } finally {
        for (const variable of VARIABLES) Deno.env.delete(variable);
      }
    },
  });
}

function machine(libraries: Partial<StandInLibraries>, minComputeCapability = 6): MachineDevices {
  return new MachineDevices({
    minComputeCapability,
    findWebGpuAdapters: noWebGpu,
    nvmlPath: libraries.nvml ?? "/nowhere/libnvidia-ml.so.1",
    cudaDriverPath: libraries.cudaDriver ?? "/nowhere/libcuda.so.1",
  });
}

gpuTest(
  "MachineDevices lists GPUs in CUDA's order, joined with NVML by UUID",
  async (libraries) => {
    Deno.env.set("CUDA_VISIBLE_DEVICES", "1,0");
    using devices = machine(libraries);
    const { gpus, reason } = await devices.gpus();
    equal(reason, undefined);
    deepEqual(
      gpus.map((gpu) => [gpu.id, gpu.name, gpu.uuid, gpu.computeCapability, gpu.pciBusId]),
      [
        [0, "Stand-in GPU 1", "GPU-00000000-0000-0000-0000-000000000001", "8.6", "0000:02:00.0"],
        [1, "Stand-in GPU 0", "GPU-00000000-0000-0000-0000-000000000000", "9.0", "0000:01:00.0"],
      ],
    );
    deepEqual(gpus.map(({ memoryByteSize }) => memoryByteSize), [2 ** 33, 2 ** 33]);
    const memory = await devices.gpuMemory(0);
    equal(memory?.totalBytes, 2 ** 33);
    equal(Math.round(4 * memory!.usedBytes / memory!.totalBytes), 1);
    equal(await devices.gpuMemory(7), undefined);
    const { version, cudaVersion } = await devices.driver();
    deepEqual([version, cudaVersion], ["555.42.01", "12.5"]);
  },
);

gpuTest("MachineDevices refuses GPUs below the minimum compute capability", async (libraries) => {
  using devices = machine(libraries, 8.9);
  const { gpus } = await devices.gpus();
  deepEqual(gpus.map(({ refusal }) => refusal), [
    undefined,
    "its compute capability 8.6 is below the minimum of 8.9 (--min-supported-compute-capability)",
  ]);
});

gpuTest("MachineDevices says why there is no GPU", async (libraries) => {
  using none = machine({});
  const { gpus, reason } = await none.gpus();
  deepEqual(gpus, []);
  match(reason!, /^no NVIDIA driver: libcuda\.so\.1 cannot be opened \(the NVIDIA driver of the /);
  deepEqual(await none.readGpus(), []);
  Deno.env.set("CUDA_STAND_IN_INIT", "3");
  using broken = machine(libraries);
  const [first] = (await broken.gpus()).gpus;
  equal(first?.refusal, "cuInit failed with 3: initialization error");
  Deno.env.delete("CUDA_STAND_IN_INIT");
  Deno.env.set("CUDA_VISIBLE_DEVICES", "");
  using hidden = machine({ cudaDriver: libraries.cudaDriver });
  equal((await hidden.gpus()).reason, "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES is '')");
});

gpuTest(
  "MachineDevices goes on without NVML, and without what it cannot read",
  async (libraries) => {
    using devices = machine({ cudaDriver: libraries.cudaDriver });
    equal((await devices.gpus()).gpus.length, 2);
    equal(await devices.gpuMemory(0), undefined);
    Deno.env.set("NVML_STAND_IN_FAIL", "Init=9");
    using unloaded = machine(libraries);
    const driver = await unloaded.driver();
    equal((driver.nvml as Error).message, "nvmlInit_v2 failed with 9: Driver Not Loaded");
    equal((await unloaded.gpus()).gpus.length, 2);
  },
);

gpuTest("MachineDevices reads GPUs; a reading that fails is undefined", async (libraries) => {
  using devices = machine(libraries);
  const [first, second] = await devices.readGpus();
  deepEqual([first?.utilization, second?.utilization], [0.4, 0.41]);
  deepEqual([first?.powerUsageWatts, first?.powerLimitWatts], [100, 300]);
  deepEqual([first?.energyJoules, second?.energyJoules], [5001, 5001]);
  Deno.env.set("NVML_STAND_IN_FAIL", "PowerUsage=3,MemoryInfo=15");
  const [failing] = await devices.readGpus();
  equal(failing?.powerUsageWatts, undefined);
  equal(failing?.memoryTotalBytes, undefined);
  equal(failing?.memoryUsedBytes, undefined);
  equal(failing?.energyJoules, 5002);
});

gpuTest("Nvml is initialised and shut down once, and used in between only", async (libraries) => {
  const report = `${libraries.folder}/report`;
  Deno.env.set("NVML_STAND_IN_REPORT", report);
  const devices = machine(libraries);
  await Promise.all([devices.gpus(), devices.readGpus(), devices.driver()]);
  devices[Symbol.dispose]();
  devices[Symbol.dispose]();
  deepEqual(await devices.readGpus(), []);
  equal(await Deno.readTextFile(report), "init\nshutdown\n");
  Deno.env.set("NVML_STAND_IN_FAIL", "Count=9");
  await Nvml.open(libraries.nvml).then(
    () => {
      throw new Error("opened");
    },
    (error: Error) =>
      equal(error.message, "nvmlDeviceGetCount_v2 failed with 9: Driver Not Loaded"),
  );
  equal(await Deno.readTextFile(report), "init\nshutdown\ninit\nshutdown\n");
});
