import assert from "node:assert/strict";
import { BufferPool } from "./buffer_pool.ts";
import { MemoryAccount, ReceiveBuffer } from "./receive_buffer.ts";

function createAccount(maxBytes = Infinity, pool = new BufferPool()): MemoryAccount {
  return new MemoryAccount(pool, maxBytes);
}

function pattern(byteSize: number): Uint8Array {
  return Uint8Array.from({ length: byteSize }, (_, index) => index * 31 + (index >> 8));
}

Deno.test("ReceiveBuffer keeps every byte while it grows", () => {
  const account = createAccount();
  const content = pattern(300_000);
  for (const expected of [-1, 300_000]) {
    for (const step of [1_000, 65_537, 300_000]) {
      const buffer = ReceiveBuffer.tryCreate(account, expected)!;
      for (let at = 0; at < content.length; at += step) {
        assert.ok(buffer.append(content, at, Math.min(content.length, at + step)));
      }
      assert.deepEqual(buffer.bytes, content);
      buffer.release();
    }
  }
  assert.equal(account.usedBytes, 0);
  assert.equal(account.pool.outstandingCount, 0);
});

Deno.test("ReceiveBuffer charges for what arrives, not for what is announced", () => {
  const account = createAccount();
  const buffer = ReceiveBuffer.tryCreate(account, 2 ** 31 - 1)!;
  assert.ok(account.usedBytes <= 65_536);
  buffer.append(pattern(1_000_000), 0, 1_000_000);
  assert.ok(account.usedBytes >= 1_000_000 && account.usedBytes <= 2_200_000);
  buffer.release();
  assert.equal(account.usedBytes, 0);
  assert.equal(account.pool.chargedBytes, 0);
});

Deno.test("ReceiveBuffer.append() is false when the connection's quota is used up", () => {
  const account = createAccount(200_000);
  const buffer = ReceiveBuffer.tryCreate(account, -1)!;
  assert.equal(buffer.append(pattern(500_000), 0, 500_000), false);
  buffer.release();
  assert.equal(account.usedBytes, 0);
});

Deno.test("ReceiveBuffer.tryCreate() is undefined when the quota of all is used up", () => {
  const pool = new BufferPool({ maxBytes: 100_000 });
  const first = ReceiveBuffer.tryCreate(createAccount(Infinity, pool), 65_536)!;
  const account = createAccount(Infinity, pool);
  assert.equal(ReceiveBuffer.tryCreate(account, 65_536), undefined);
  assert.equal(account.usedBytes, 0);
  first.release();
  const second = ReceiveBuffer.tryCreate(account, 65_536)!;
  second.release();
  assert.equal(pool.chargedBytes, 0);
});

Deno.test("ReceiveBuffer takes an empty message", () => {
  const account = createAccount();
  const buffer = ReceiveBuffer.tryCreate(account, 0)!;
  assert.equal(buffer.bytes.length, 0);
  buffer.release();
  assert.equal(account.usedBytes, 0);
});

Deno.test("ReceiveBuffer.release() throws the second time and poisons the bytes", () => {
  const account = createAccount(Infinity, new BufferPool({ poison: true }));
  for (const byteSize of [10, 100_000]) {
    const buffer = ReceiveBuffer.tryCreate(account, byteSize)!;
    buffer.append(pattern(byteSize), 0, byteSize);
    const { bytes } = buffer;
    buffer.release();
    assert.ok(bytes.every((byte) => byte === 0xdb));
    assert.throws(() => buffer.release(), /released twice/);
  }
  assert.equal(account.pool.outstandingCount, 0);
});
