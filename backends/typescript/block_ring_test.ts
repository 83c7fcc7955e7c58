import assert from "node:assert/strict";
import { BlockRing, freeBlock } from "./block_ring.ts";

Deno.test("BlockRing gives blocks aligned to 64 that do not overlap", () => {
  const ring = new BlockRing(1024);
  const offsets = [1, 64, 65].map((byteSize) => ring.tryAllocate(byteSize));
  assert.deepEqual(offsets, [64, 192, 320]);
});

Deno.test("BlockRing refuses what does not fit, until blocks are freed in order", () => {
  const ring = new BlockRing(512);
  const offsets = [64, 64, 64, 64].map((byteSize) => ring.tryAllocate(byteSize)!);
  assert.equal(ring.tryAllocate(1), undefined);
  freeBlock(ring.buffer, offsets[1]!);
  assert.equal(ring.tryAllocate(1), undefined, "the oldest is still taken");
  freeBlock(ring.buffer, offsets[0]!);
  assert.equal(ring.tryAllocate(64), 64, "begins again at the start");
  assert.equal(ring.tryAllocate(64), 192);
  assert.equal(ring.tryAllocate(1), undefined);
});

Deno.test("BlockRing leaves the end of the ring when a block does not fit there", () => {
  const ring = new BlockRing(512);
  const first = ring.tryAllocate(192)!;
  const second = ring.tryAllocate(64)!;
  freeBlock(ring.buffer, first);
  assert.equal(ring.tryAllocate(128), 64);
  freeBlock(ring.buffer, second);
  assert.equal(ring.tryAllocate(448), undefined);
});

Deno.test("BlockRing is whole again after every block was freed, in any order", () => {
  const ring = new BlockRing(4096);
  let seed = 1;
  const random = (below: number) => (seed = seed * 48271 % 2147483647) % below;
  const held: { offset: number; byteSize: number }[] = [];
  for (let round = 0; round < 5000; round++) {
    if (random(2) === 0 && held.length > 0) {
      const [block] = held.splice(random(held.length), 1);
      freeBlock(ring.buffer, block!.offset);
      continue;
    }
    const byteSize = 1 + random(700);
    const offset = ring.tryAllocate(byteSize);
    if (offset === undefined) continue;
    const end = offset + byteSize;
    assert.ok(end <= 4096);
    for (const other of held) {
      assert.ok(end <= other.offset - 64 || offset - 64 >= other.offset + other.byteSize);
    }
    held.push({ offset, byteSize });
  }
  for (const { offset } of held) freeBlock(ring.buffer, offset);
  assert.notEqual(ring.tryAllocate(4096 - 64), undefined);
});
