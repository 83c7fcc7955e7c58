import assert from "node:assert/strict";
import { ServerError } from "../proto/status.ts";
import { tellsDeviceLoss } from "./device_loss.ts";

const LOST = [
  "cudaStreamSynchronize failed with cudaErrorIllegalAddress (700): an illegal memory access was encountered",
  "Non-zero status code returned while running Conv node. CUDA failure 719: unspecified launch failure ; GPU=0",
  "CUDA error: device-side assert triggered",
  "cuLaunchKernel: CUDA_ERROR_ILLEGAL_INSTRUCTION",
  "WebGPU device was lost: the driver was reset",
];
const NOT_LOST = [
  "cudaMalloc failed with cudaErrorMemoryAllocation (2): out of memory",
  "CUDA failure 2: out of memory ; GPU=0",
  "CUDA error: out of memory",
  "the message was lost",
  "input 'IN' has 700 elements",
];

for (const text of LOST) {
  Deno.test(`tellsDeviceLoss() sees: ${text}`, () => {
    assert.ok(tellsDeviceLoss(new ServerError("INTERNAL", text)));
    const cause = new Error(text);
    assert.ok(tellsDeviceLoss(new ServerError("UNAVAILABLE", "the run failed", { cause })));
    assert.ok(!tellsDeviceLoss(new ServerError("INVALID_ARG", text)));
  });
}

for (const text of NOT_LOST) {
  Deno.test(`tellsDeviceLoss() lets pass: ${text}`, () => {
    assert.ok(!tellsDeviceLoss(new ServerError("INTERNAL", text)));
  });
}
