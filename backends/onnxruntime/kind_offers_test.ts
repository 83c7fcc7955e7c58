import assert from "node:assert/strict";
import type { Devices, GpuList, WebGpuList } from "../device_list.ts";
import { offerKinds } from "./kind_offers.ts";

const NO_GPU: GpuList = { gpus: [], reason: "no NVIDIA driver", minComputeCapability: 6 };
const ONE_GPU: GpuList = {
  gpus: [{
    id: 0,
    name: "GPU",
    uuid: "GPU-1",
    pciBusId: "",
    computeCapability: "8.6",
    memoryByteSize: 0,
  }],
  minComputeCapability: 6,
};

function devicesOf(gpus: GpuList, webGpu: WebGpuList): Devices {
  return {
    gpus: () => Promise.resolve(gpus),
    webGpuAdapters: () => Promise.resolve(webGpu),
    gpuMemory: () => Promise.resolve(undefined),
  };
}

function adapterOf(isSoftware: boolean): WebGpuList {
  const adapter = { id: 0, source: "onnxruntime", name: "A", vendor: "", isSoftware } as const;
  return { adapters: [adapter], reasons: {} };
}

const LIBRARY = {
  version: "1.30.0",
  path: "libonnxruntime.so",
  providers: ["CUDAExecutionProvider", "WebGpuExecutionProvider", "CPUExecutionProvider"],
};

const OPTIONS = { openLibrary: () => LIBRARY, allowsSoftware: false, prefersWebGpu: false };

/** Runs with a driver named, as if one were installed. */
async function withDriver<Value>(run: () => Promise<Value>): Promise<Value> {
  const before = Deno.env.get("VK_DRIVER_FILES");
  Deno.env.set("VK_DRIVER_FILES", "/driver.json");
  try {
    return await run();
  } finally {
    if (before === undefined) Deno.env.delete("VK_DRIVER_FILES");
    else Deno.env.set("VK_DRIVER_FILES", before);
  }
}

Deno.test("offerKinds() prefers CUDA to WebGPU to the CPU", () =>
  withDriver(async () => {
    const offers = await offerKinds(devicesOf(ONE_GPU, adapterOf(false)), OPTIONS);
    assert.deepEqual(offers.map(({ device }) => device), ["cuda", "webgpu", "cpu"]);
    assert.deepEqual(offers.map(({ refusal }) => refusal), [undefined, undefined, undefined]);
    assert.deepEqual(offers.map(({ deviceIds }) => deviceIds), [[0], [0], [0]]);
  }));

Deno.test("offerKinds() prefers WebGPU when the model does", () =>
  withDriver(async () => {
    const options = { ...OPTIONS, prefersWebGpu: true };
    const offers = await offerKinds(devicesOf(ONE_GPU, adapterOf(false)), options);
    assert.deepEqual(offers.map(({ device }) => device), ["webgpu", "cuda", "cpu"]);
  }));

Deno.test("offerKinds() tells which package brings a provider for CUDA to a library without", () =>
  withDriver(async () => {
    const library = { ...LIBRARY, providers: ["CPUExecutionProvider"] };
    const options = { ...OPTIONS, openLibrary: () => library };
    const [cuda] = await offerKinds(devicesOf(ONE_GPU, adapterOf(false)), options);
    assert.deepEqual(cuda?.deviceIds, []);
    assert.match(
      cuda?.refusal ?? "",
      /1\.30\.0 has no provider for CUDA.*Gpu\.Linux.*library=FILE/,
    );
  }));

Deno.test("offerKinds() does not open the library where there is no GPU", () =>
  withDriver(async () => {
    const openLibrary = () => assert.fail("opened");
    const webGpu = { adapters: [], reasons: { onnxruntime: "no adapter" } };
    const offers = await offerKinds(devicesOf(NO_GPU, webGpu), { ...OPTIONS, openLibrary });
    assert.equal(offers[0]?.refusal, "no NVIDIA driver");
    assert.match(offers[1]?.refusal ?? "", /^no adapter \(.*mesa-vulkan-drivers/);
    assert.equal(offers[2]?.refusal, undefined);
  }));

Deno.test("offerKinds() takes an adapter that runs on the CPU only when told to", () =>
  withDriver(async () => {
    const devices = devicesOf(NO_GPU, adapterOf(true));
    const [, refused] = await offerKinds(devices, OPTIONS);
    assert.match(refused?.refusal ?? "", /runs on the CPU.*webgpu-software=true/);
    const [, taken] = await offerKinds(devices, { ...OPTIONS, allowsSoftware: true });
    assert.equal(taken?.refusal, undefined);
    assert.deepEqual(taken?.deviceIds, [0]);
  }));
