/** Tests on the GPU of this machine, or on what LD_LIBRARY_PATH has in its place: only when they are asked for. */
import { equal, rejects } from "node:assert/strict";
import { MachineDevices } from "../../backends/device.ts";
import { createCallRunner } from "../../ffi/call_list.ts";
import { openCudaExecution } from "../../ffi/cuda/execution_library.ts";
import { MemoryBudget } from "../../ffi/cuda/memory_budget.ts";
import { PooledDevice } from "../../ffi/cuda/pooled_device.ts";
import { loadMachineCode } from "../../ffi/machine_code.ts";
import { ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { runBackendSuite } from "../backends/backend_suite.ts";
import { type ConfigInit, openInstance } from "../backends/fixture.ts";
import { identityModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";

/** `scripts/gpu_check.ts` sets it. */
const isAskedFor = Deno.env.get("NEREID_GPU_TESTS") === "1";
const MODEL = identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]);
const GROUP = { name: "m_0", kind: ModelInstanceGroup_Kind.GPU, gpus: [0], count: 1 };

function openOnCuda(config: ConfigInit, instanceCount = 1) {
  return openInstance("onnxruntime", {
    model: MODEL,
    config: { ...config, instanceGroup: [GROUP] },
    instanceCount,
    placement: { kind: "KIND_GPU", deviceId: 0 },
  });
}

/** Why ONNX Runtime cannot use CUDA here. */
async function whyNoCuda(): Promise<string | undefined> {
  if (!isAskedFor) return "no GPU tests are asked for (NEREID_GPU_TESTS=1)";
  using devices = new MachineDevices({
    minComputeCapability: 6,
    findWebGpuAdapters: () => Promise.resolve({ adapters: [], reasons: {} }),
  });
  await using opened = await openInstance("onnxruntime", { model: MODEL });
  const offers = await opened.backend.kinds!(devices, opened.source);
  return offers.find(({ device }) => device === "cuda")?.refusal;
}

const reason = await whyNoCuda();
if (reason === undefined) {
  runBackendSuite({ name: "onnxruntime on CUDA", open: openOnCuda });
} else {
  Deno.test({ name: `onnxruntime on CUDA: ${reason}`, ignore: true, fn: () => {} });
}

Deno.test({
  name: "PooledDevice bounds pinned memory and uses memory of a real GPU again",
  ignore: !isAskedFor,
  fn: async () => {
    const cuda = await openCudaExecution(createCallRunner(loadMachineCode()));
    const pinned = new MemoryBudget(10_000);
    const device = new PooledDevice(cuda, 0, { pinned, deviceByteSize: 8192 });
    const staging = await device.allocatePinned(6000);
    await rejects(device.allocatePinned(6000), /has 10000 bytes, 6000 of them in use/);
    await device.destroy([staging]);
    equal(pinned.usedBytes, 0);
    const block = await device.allocate(4096);
    await device.destroy([block]);
    const again = await device.allocate(3000);
    equal(again.address, block.address);
    await device.destroy([again]);
    await device.trim();
  },
});
