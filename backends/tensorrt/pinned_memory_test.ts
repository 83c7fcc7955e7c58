import assert from "node:assert/strict";
import type { DeviceCalls } from "../../ffi/cuda/device_calls.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import { addressOf } from "../../ffi/memory.ts";
import { OutputBlocks } from "./output_blocks.ts";
import { PinnedMemory } from "./pinned_memory.ts";

/** A device whose pinned memory is ordinary memory, and a budget of so many bytes. */
function fake(totalBytes: number) {
  const kept = new Map<bigint, Uint8Array>();
  let fails = false;
  let usedBytes = 0;
  const warnings: string[] = [];
  const device = {
    allocatePinned(byteSize: number) {
      if (fails) return Promise.reject(new CudaError("out of memory", 2));
      const bytes = new Uint8Array(new ArrayBuffer(byteSize));
      kept.set(addressOf(bytes), bytes);
      return Promise.resolve({ address: addressOf(bytes), destroy: "cudaFreeHost" });
    },
    destroy(objects: readonly { readonly address: bigint }[]) {
      for (const { address } of objects) assert.ok(kept.delete(address));
      return Promise.resolve();
    },
  } as unknown as DeviceCalls;
  const budget = {
    totalBytes,
    get usedBytes() {
      return usedBytes;
    },
    take(byteSize: number) {
      if (usedBytes + byteSize > totalBytes) return false;
      usedBytes += byteSize;
      return true;
    },
    give(byteSize: number) {
      usedBytes -= byteSize;
    },
  };
  const pinned = new PinnedMemory(device, { budget, warn: (text) => warnings.push(text) });
  return { pinned, budget, kept, warnings, fail: () => fails = true };
}

Deno.test("PinnedMemory stays within the budget and gives back what it freed", async () => {
  const { pinned, budget, kept, warnings } = fake(20_000);
  const first = await pinned.allocate(5000);
  assert.equal(first?.bytes.byteLength, 8192);
  assert.equal(await pinned.allocate(16_000), undefined);
  assert.equal(await pinned.allocate(16_000), undefined);
  assert.deepEqual(warnings, [
    "copies go without pinned memory, 16384 bytes are not to be had: 8192 of 20000 bytes are taken",
  ]);
  await pinned.free([first!]);
  assert.deepEqual([budget.usedBytes, kept.size], [0, 0]);
  assert.notEqual(await pinned.allocate(16_000), undefined);
});

Deno.test("PinnedMemory asks CUDA no more when it had none left", async () => {
  const { pinned, budget, warnings, fail } = fake(1e6);
  fail();
  assert.equal(await pinned.allocate(1), undefined);
  assert.equal(await pinned.allocate(1), undefined);
  assert.equal(budget.usedBytes, 0);
  assert.match(warnings.join(), /4096 bytes are not to be had: out of memory$/);
});

Deno.test("OutputBlocks lends each block to one run, again when it was released", async () => {
  const { pinned, kept } = fake(1e6);
  await using blocks = new OutputBlocks(pinned);
  const first = await blocks.take(100);
  const second = await blocks.take(100);
  assert.notEqual(first.address, second.address);
  assert.equal(first.bytes.byteLength, 100);
  first.release();
  first.release();
  const third = await blocks.take(4000);
  assert.equal(third.address, first.address);
  second.release();
  await blocks[Symbol.asyncDispose]();
  assert.equal(kept.size, 1);
  third.release();
  assert.equal(kept.size, 0);
});

Deno.test("OutputBlocks goes on in ordinary memory when there is no pinned one", async () => {
  for (const pinned of [undefined, fake(0).pinned]) {
    const block = await new OutputBlocks(pinned).take(10);
    assert.equal(block.bytes.byteLength, 10);
    block.release();
  }
});
