import { deepEqual, equal, match } from "node:assert/strict";
import { formatJson } from "../http/json_response.ts";
import type { DeviceInventory } from "./device_inventory.ts";
import { formatInventory, inventoryJson } from "./device_report.ts";

const GPU = {
  id: 0,
  name: "GPU zero",
  uuid: "GPU-0",
  pciBusId: "0000:01:00.0",
  computeCapability: "8.6",
  memoryByteSize: 8 * 2 ** 30,
};

const INVENTORY: DeviceInventory = {
  cpu: { model: "Some CPU", architecture: "x86_64", coreCount: 2, memoryByteSize: 2 ** 30 },
  driver: { version: "555.42", cudaVersion: "12.5" },
  gpus: [
    { ...GPU, memory: { totalBytes: 8 * 2 ** 30, usedBytes: 2 ** 30 } },
    { ...GPU, id: 1, computeCapability: "5.0", refusal: "its compute capability is too low" },
  ],
  webGpu: {
    adapters: [{ id: 0, source: "navigator.gpu", name: "llvmpipe", vendor: "x", isSoftware: true }],
    reasons: { onnxruntime: "No supported adapters" },
  },
  libraries: [
    { name: "ONNX Runtime", version: "1.30.0", path: "/lib/ort.so", backends: ["onnxruntime"] },
    {
      name: "Python",
      version: "3.12",
      path: "/bin/python3",
      reason: "it has no numpy",
      packages: "pip install numpy",
      backends: ["python"],
    },
    {
      name: "TensorRT",
      version: "",
      reason: "no such file",
      packages: "pip install tensorrt",
      backends: ["tensorrt"],
    },
  ],
  backends: [
    {
      name: "identity",
      kinds: [
        { kind: "KIND_GPU", device: "cuda", deviceIds: [0] },
        { kind: "KIND_GPU", device: "webgpu", deviceIds: [], refusal: "not for it" },
        { kind: "KIND_CPU", device: "cpu", deviceIds: [0] },
      ],
    },
    {
      name: "tensorrt",
      kinds: [{ kind: "KIND_GPU", device: "cuda", deviceIds: [], refusal: "no driver" }],
    },
    { name: "python", kinds: [{ kind: "KIND_CPU", device: "cpu", deviceIds: [0] }] },
    { name: "broken", kinds: [], error: "cannot be opened" },
  ],
};

Deno.test("formatInventory() shows devices, libraries and backends, and how to get what is missing", () => {
  deepEqual(formatInventory(INVENTORY).split("\n").map((line) => line.trim()), [
    "Devices",
    "CPU              2 × Some CPU, 1024 MiB",
    "NVIDIA driver    555.42, CUDA 12.5",
    "GPU 0            GPU zero, compute capability 8.6, 8192 MiB, 1024 MiB in use, GPU-0",
    "GPU 1            GPU zero, compute capability 5.0, 8192 MiB, GPU-0",
    "not used: its compute capability is too low",
    "WebGPU           llvmpipe (runs on the CPU), by navigator.gpu",
    "WebGPU           none by onnxruntime: No supported adapters",
    "",
    "Libraries",
    "ONNX Runtime     1.30.0  /lib/ort.so",
    "Python           3.12  /bin/python3",
    "missing: it has no numpy",
    "pip install numpy (for python)",
    "TensorRT         missing: no such file",
    "pip install tensorrt (for tensorrt)",
    "",
    "Backends",
    "identity         CUDA (KIND_GPU, devices 0), CPU (KIND_CPU)",
    "not WebGPU: not for it",
    "tensorrt         nothing that is here",
    "not CUDA: no driver",
    "TensorRT is missing, see above",
    "python           CPU (KIND_CPU)",
    "Python cannot be used: it has no numpy, see above",
    "broken           cannot be opened",
    "",
  ]);
});

Deno.test("inventoryJson() has the same with the names of the protocol", () => {
  const json = JSON.parse(formatJson(inventoryJson(INVENTORY)));
  deepEqual(Object.keys(json), ["cpu", "driver", "gpus", "webgpu", "libraries", "backends"]);
  equal(json.gpus[0].memory_used_byte_size, 2 ** 30);
  deepEqual([json.gpus[0].usable, json.gpus[1].usable], [true, false]);
  match(json.gpus[1].reason, /too low/);
  deepEqual(json.webgpu.missing, { onnxruntime: "No supported adapters" });
  deepEqual(json.libraries.map((library: { found: boolean }) => library.found), [
    true,
    true,
    false,
  ]);
  deepEqual(json.backends[0].kinds[1], {
    kind: "KIND_GPU",
    device: "webgpu",
    device_ids: [],
    usable: false,
    reason: "not for it",
  });
});
