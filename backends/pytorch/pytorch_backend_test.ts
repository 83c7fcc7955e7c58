import assert from "node:assert/strict";
import type { Devices } from "../backend.ts";
import { fakeHost } from "../model_host_fixture.ts";
import { PyTorchBackend } from "./pytorch_backend.ts";

const GPU = {
  ...{ id: 0, name: "A", uuid: "GPU-0", pciBusId: "", computeCapability: "8.6" },
  memoryByteSize: 0,
};

function devices(hasGpu: boolean): Devices {
  const list = hasGpu ? { gpus: [GPU] } : { gpus: [], reason: "no driver" };
  return {
    gpus: () => Promise.resolve({ ...list, minComputeCapability: 6 }),
    webGpuAdapters: () => Promise.resolve({ adapters: [], reasons: {} }),
    gpuMemory: () => Promise.resolve(undefined),
  };
}

/** Offers with a libtorch of these files beside `libtorch.so`. */
async function offersWith(files: readonly string[], hasGpu = true) {
  const folder = await Deno.makeTempDir({ prefix: "nereid_torch_" });
  try {
    await Deno.mkdir(`${folder}/lib`);
    await Deno.mkdir(`${folder}/include/torch`, { recursive: true });
    for (const name of ["libtorch.so", ...files]) {
      await Deno.writeTextFile(`${folder}/lib/${name}`, "");
    }
    await Deno.writeTextFile(`${folder}/include/torch/script.h`, "");
    await using backend = new PyTorchBackend({
      settings: new Map([["library", `${folder}/lib`]]),
      log: { info() {}, warning() {}, error() {}, verbose() {} },
      now: () => 0,
      countBatchRetry: () => {},
      host: fakeHost(),
    });
    return await backend.kinds(devices(hasGpu));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("kinds() offers GPUs first when libtorch has CUDA", async () => {
  const offers = await offersWith(["libtorch_cuda.so"]);
  assert.deepEqual(offers.map(({ kind }) => kind), ["KIND_GPU", "KIND_CPU"]);
  assert.deepEqual(offers[0], { kind: "KIND_GPU", device: "cuda", deviceIds: [0] });
});

Deno.test("kinds() tells why there are no GPUs", async () => {
  const [cpu, gpus] = await offersWith([]);
  assert.equal(cpu!.kind, "KIND_CPU");
  assert.match(
    gpus!.refusal!,
    /libtorch in '.*' is built without CUDA, one with it has libtorch_cuda/,
  );
  const [, none] = await offersWith(["libtorch_cuda.so"], false);
  assert.match(none!.refusal!, /no driver/);
});
