import assert from "node:assert/strict";
import { BufferPool } from "./buffer_pool.ts";

Deno.test("BufferPool.take() gives exactly the size asked for and reuses memory", () => {
  const pool = new BufferPool();
  for (const byteSize of [0, 1, 5, 255, 256, 257, 32_768, 65_537, 1_000_000]) {
    const first = pool.take(byteSize);
    assert.equal(first.length, byteSize);
    pool.giveBack(first);
    const second = pool.take(byteSize);
    assert.equal(second.length, byteSize);
    assert.equal(second.buffer, first.buffer, `reuse at ${byteSize}`);
    pool.giveBack(second);
  }
  assert.equal(pool.outstandingCount, 0);
});

Deno.test("BufferPool.take() aligns the end of a buffer, where the tensors of a request lie", () => {
  const pool = new BufferPool();
  for (const byteSize of [0, 1, 63, 64, 65, 602_255, 2 ** 20, 2 ** 28 - 1]) {
    const { byteOffset, length } = pool.take(byteSize);
    assert.equal((byteOffset + length) % 64, 0, `${byteSize} bytes`);
    assert.ok(byteOffset < 64);
  }
});

Deno.test("BufferPool never gives one buffer to two owners", () => {
  const pool = new BufferPool();
  const owners = Array.from({ length: 10 }, () => pool.take(40_000));
  assert.equal(new Set(owners.map((bytes) => bytes.buffer)).size, 10);
  for (const bytes of owners) pool.giveBack(bytes);
  assert.equal(pool.outstandingCount, 0);
});

Deno.test("BufferPool poisons memory that was given back when asked to", () => {
  const pool = new BufferPool({ poison: true });
  for (const byteSize of [10, 100_000]) {
    const bytes = pool.take(byteSize);
    bytes.fill(7);
    pool.giveBack(bytes);
    assert.ok(bytes.every((byte) => byte === 0xdb));
  }
});

Deno.test("BufferPool keeps no more idle bytes than allowed", () => {
  const pool = new BufferPool({ maxIdleBytes: 100_000 });
  const owners = Array.from({ length: 10 }, () => pool.take(40_000));
  for (const bytes of owners) pool.giveBack(bytes);
  assert.equal(pool.idleBytes, 65_536);
});

Deno.test("BufferPool.tryCharge() keeps the quota", () => {
  const pool = new BufferPool({ maxBytes: 100 });
  assert.equal(pool.tryCharge(60), true);
  assert.equal(pool.tryCharge(41), false);
  pool.refund(60);
  assert.equal(pool.tryCharge(100), true);
});

Deno.test("BufferPool frees at once what it does not keep", () => {
  const pool = new BufferPool({ maxIdleBytes: 100_000 });
  const [kept, freed] = [pool.take(60_000), pool.take(60_000)];
  pool.giveBack(kept);
  pool.giveBack(freed);
  assert.equal(kept.length, 60_000);
  assert.equal(freed.length, 0, "the memory is gone");
});

Deno.test("BufferPool.trim() frees what nobody needed for ten seconds", () => {
  const pool = new BufferPool();
  const owners = Array.from({ length: 4 }, () => pool.take(65_536));
  for (const bytes of owners) pool.giveBack(bytes);
  pool.trim(20_000);
  assert.equal(pool.idleBytes, 4 * 65_536, "all were in use in the meantime");
  const busy = pool.take(65_536);
  pool.giveBack(busy);
  pool.trim(29_000);
  assert.equal(pool.idleBytes, 4 * 65_536, "too early");
  pool.trim(30_000);
  assert.equal(pool.idleBytes, 65_536, "one was enough");
  pool.trim(40_000);
  assert.equal(pool.idleBytes, 0);
  assert.equal(pool.take(65_536).length, 65_536);
});
