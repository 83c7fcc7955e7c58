import assert from "node:assert/strict";
import { BufferPool } from "./buffer_pool.ts";

Deno.test("BufferPool.acquire() gives exactly the size asked for and reuses memory", () => {
  const pool = new BufferPool();
  for (const byteSize of [0, 1, 5, 32_767, 32_768, 32_769, 65_536, 65_537, 1_000_000]) {
    const first = pool.acquire(byteSize);
    assert.equal(first.bytes.length, byteSize);
    const memory = first.bytes.buffer;
    first.release();
    const second = pool.acquire(byteSize);
    assert.equal(second.bytes.length, byteSize);
    assert.equal(second.bytes.buffer === memory, byteSize >= 32_768, `reuse at ${byteSize}`);
    second.release();
  }
  assert.equal(pool.outstandingCount, 0);
});

Deno.test("BufferPool never gives one buffer to two owners", () => {
  const pool = new BufferPool();
  const owners = Array.from({ length: 10 }, () => pool.acquire(40_000));
  assert.equal(new Set(owners.map((owner) => owner.bytes.buffer)).size, 10);
  for (const owner of owners) owner.release();
});

Deno.test("PooledBuffer.release() throws the second time", () => {
  for (const byteSize of [10, 100_000]) {
    const buffer = new BufferPool().acquire(byteSize);
    buffer.release();
    assert.throws(() => buffer.release(), /released twice/);
  }
});

Deno.test("BufferPool poisons released memory when asked to", () => {
  const pool = new BufferPool({ poison: true });
  for (const byteSize of [10, 100_000]) {
    const buffer = pool.acquire(byteSize);
    const { bytes } = buffer;
    bytes.fill(7);
    buffer.release();
    assert.ok(bytes.every((byte) => byte === 0xdb));
  }
});

Deno.test("BufferPool keeps no more idle bytes than allowed", () => {
  const pool = new BufferPool({ maxIdleBytes: 100_000 });
  const owners = Array.from({ length: 10 }, () => pool.acquire(40_000));
  for (const owner of owners) owner.release();
  assert.equal(pool.idleBytes, 65_536);
});

Deno.test("BufferPool.tryCharge() keeps the quota", () => {
  const pool = new BufferPool({ maxBytes: 100 });
  assert.equal(pool.tryCharge(60), true);
  assert.equal(pool.tryCharge(41), false);
  pool.refund(60);
  assert.equal(pool.tryCharge(100), true);
});
