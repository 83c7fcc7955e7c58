import assert from "node:assert/strict";
import type { ExecuteRequest, ModelInstance, OutputTarget } from "../../backends/backend.ts";
import { executeRequest } from "../../backends/execute_request_fixture.ts";
import { createDeviceTensor, type DevicePlace, type Tensor } from "../../proto/tensor.ts";
import { outputsOf } from "./fixture.ts";

/** Memory of a client on a GPU, at a multiple of 256. */
export interface GpuBlock {
  place(offset: number, byteSize: number): DevicePlace;
  write(offset: number, values: readonly number[]): void | Promise<void>;
  read(offset: number, count: number): number[] | Promise<number[]>;
}

/** A tensor on a GPU whose bytes nobody may look at. */
export function onGpu(name: string, shape: readonly number[], place: DevicePlace): Tensor {
  return createDeviceTensor({ name, datatype: "FP32", shape }, place, neverRead);
}

/** A place for an output on a GPU whose bytes nobody may look at. */
export function targetAt(place: DevicePlace): OutputTarget {
  return { byteSize: place.byteSize, place, read: neverRead };
}

function neverRead(): never {
  throw new Error("a tensor was copied to the host");
}

/**
 * Runs an identity INPUT0 → OUTPUT0 of FP32 rows of four with tensors in `gpu` (8 KB): alone, where kernels cannot work,
 * and in a batch. `movesThere`: the instance can copy on the GPU.
 */
export async function checkGpuTensors(
  instance: ModelInstance,
  gpu: GpuBlock,
  { movesThere }: { readonly movesThere: boolean },
): Promise<void> {
  const order = (rows: number, from: number, to: number): ExecuteRequest =>
    executeRequest({
      inputs: [onGpu("INPUT0", [rows, 4], gpu.place(from, 16 * rows))],
      outputs: ["OUTPUT0"],
      batchSize: rows,
      targets: new Map([["OUTPUT0", targetAt(gpu.place(to, 16 * rows))]]),
    });
  const rowsFrom = (start: number, rows: number) =>
    Array.from({ length: 4 * rows }, (_, index) => start + index);
  const run = async (orders: readonly (readonly [number, number, number])[]) => {
    for (const [index, [rows, from]] of orders.entries()) {
      await gpu.write(from, rowsFrom(index, rows));
    }
    const requests = orders.map((each) => order(...each));
    const { outcomes } = await instance.execute(requests);
    for (const [index, [rows, , to]] of orders.entries()) {
      const [output] = outputsOf(outcomes[index]);
      assert.deepEqual(output!.place, gpu.place(to, 16 * rows));
      assert.deepEqual([...output!.shape], [rows, 4]);
      assert.deepEqual(await gpu.read(to, 4 * rows), rowsFrom(index, rows));
    }
  };
  assert.equal(instance.memoryUse?.cudaDeviceId, gpu.place(0, 0).deviceId);
  await run([[2, 0, 4096]]);
  await run([[1, 0, 4096], [2, 256, 4352], [1, 512, 4608]]);
  if (!movesThere) return;
  await run([[2, 16, 4096 + 48]]);
  await run([[1, 16, 4096 + 48], [2, 64, 4096 + 512]]);
}
