import assert from "node:assert/strict";
import { Arena } from "./arena.ts";

function createArena(limits: { initial?: number; growth?: number; max?: number } = {}) {
  const made: number[] = [];
  let disposedCount = 0;
  const arena = new Arena({
    initialByteSize: limits.initial ?? 4096,
    growthByteSize: limits.growth ?? 4096,
    maxByteSize: limits.max ?? 1 << 20,
    createSegment(byteSize) {
      made.push(byteSize);
      return {
        fd: 10 + made.length,
        bytes: new Uint8Array(byteSize),
        [Symbol.dispose]: () => void disposedCount++,
      };
    },
  });
  return { arena, made, disposedCount: () => disposedCount };
}

Deno.test("tryAllocate() gives slots that begin at multiples of 64 and do not overlap", () => {
  const { arena } = createArena();
  const slots = Array.from({ length: 200 }, (_, index) => arena.tryAllocate(1 + index * 7)!);
  for (const [index, slot] of slots.entries()) {
    assert.equal(slot.offset % 64, 0);
    assert.equal(slot.bytes.length, 1 + index * 7);
    slot.bytes.fill(index);
  }
  for (const [index, slot] of slots.entries()) {
    assert.ok(slot.bytes.every((byte) => byte === index % 256));
  }
  assert.equal(arena.usedCount, 200);
});

Deno.test("free() lets a slot be used again, for sizes close to it too", () => {
  const { arena, made } = createArena();
  arena.open();
  const held = arena.tryAllocate(64)!;
  const first = arena.tryAllocate(1000)!;
  arena.free(first.segment, first.offset);
  const second = arena.tryAllocate(990)!;
  assert.equal(second.offset, first.offset);
  assert.equal(held.offset, 0);
  assert.deepEqual(made, [4096]);
});

Deno.test("a segment without slots in use takes slots of any size", () => {
  const { arena, made } = createArena();
  arena.open();
  const small = Array.from({ length: 60 }, () => arena.tryAllocate(64)!);
  for (const { segment, offset } of small) arena.free(segment, offset);
  assert.ok(arena.tryAllocate(4000));
  assert.deepEqual(made, [4096]);
});

Deno.test("the arena grows with what it has, up to its limit", () => {
  const { arena, made } = createArena({ max: 40_000 });
  arena.open();
  assert.ok(arena.tryAllocate(4096));
  assert.ok(arena.tryAllocate(4096));
  assert.ok(arena.tryAllocate(4096));
  assert.ok(arena.tryAllocate(20_000));
  assert.equal(arena.tryAllocate(20_000), undefined);
  assert.ok(made.length <= 4);
  assert.ok(arena.byteSize <= 40_000);
  assert.ok(arena.tryAllocate(100));
});

Deno.test("tryAllocate() gives nothing when the system has no more memory", () => {
  const arena = new Arena({
    initialByteSize: 4096,
    growthByteSize: 4096,
    maxByteSize: 1 << 20,
    createSegment: () => {
      throw new Error("No memory");
    },
  });
  assert.equal(arena.tryAllocate(10), undefined);
});

Deno.test("free() refuses what is not in use", () => {
  const { arena } = createArena();
  const { segment, offset } = arena.tryAllocate(100)!;
  assert.throws(() => arena.free(segment, offset + 64), RangeError);
  assert.throws(() => arena.free(99, offset), RangeError);
  arena.free(segment, offset);
  assert.throws(() => arena.free(segment, offset), RangeError);
});

Deno.test("a random mix of sizes and frees stays inside its limit and keeps its bytes", () => {
  const { arena } = createArena({ max: 1 << 20 });
  let seed = 7;
  const random = (below: number) => (seed = (seed * 48271) % 0x7fff_ffff) % below;
  const held: { slot: NonNullable<ReturnType<Arena["tryAllocate"]>>; mark: number }[] = [];
  for (let step = 0; step < 5000; step++) {
    const slot = random(2) === 0 ? arena.tryAllocate(1 + random(30_000)) : undefined;
    if (slot !== undefined) {
      slot.bytes.fill(step);
      held.push({ slot, mark: step % 256 });
    } else if (held.length > 0) {
      const [{ slot, mark }] = held.splice(random(held.length), 1) as [typeof held[0]];
      assert.ok(slot.bytes[0] === mark && slot.bytes.at(-1) === mark);
      arena.free(slot.segment, slot.offset);
    }
  }
  assert.equal(arena.usedCount, held.length);
});

Deno.test("disposing the arena frees its segments", () => {
  const { arena, disposedCount } = createArena();
  arena.open();
  arena[Symbol.dispose]();
  assert.equal(disposedCount(), 1);
  assert.equal(arena.byteSize, 0);
});
