import assert from "node:assert/strict";
import { StreamedBody } from "./streamed_body.ts";

async function isSettled(promise: Promise<void>): Promise<boolean> {
  let settled = false;
  promise.then(() => settled = true);
  for (let turn = 0; turn < 5; turn++) await Promise.resolve();
  return settled;
}

Deno.test("StreamedBody joins what waits, wakes a reader that waits, and ends", async () => {
  const body = new StreamedBody(() => assert.fail("nobody has gone"));
  const reader = body[Symbol.asyncIterator]();
  const first = reader.next();
  body.write(Uint8Array.of(1));
  assert.deepEqual(await first, { done: false, value: Uint8Array.of(1) });
  body.write(Uint8Array.of(2));
  body.write(Uint8Array.of(3));
  body.end();
  assert.deepEqual(await reader.next(), { done: false, value: Uint8Array.of(2, 3) });
  assert.deepEqual(await reader.next(), { done: true, value: undefined });
  assert.equal(body.write(Uint8Array.of(4)), undefined);
});

Deno.test("StreamedBody asks the writer to wait for the reader", async () => {
  const body = new StreamedBody(() => {});
  const reader = body[Symbol.asyncIterator]();
  assert.equal(body.write(new Uint8Array(200_000)), undefined);
  const wait = body.write(new Uint8Array(100_000))!;
  assert.equal(await isSettled(wait), false);
  await reader.next();
  assert.equal(await isSettled(wait), true);
});

Deno.test("StreamedBody lets the writer go when the reader has gone, and says so once", async () => {
  let goneCount = 0;
  const body = new StreamedBody(() => goneCount++);
  const reader = body[Symbol.asyncIterator]();
  const wait = body.write(new Uint8Array(300_000))!;
  await reader.return!();
  assert.equal(await isSettled(wait), true);
  assert.equal(body.write(new Uint8Array(300_000)), undefined);
  body.giveUp();
  assert.equal(goneCount, 1);
});

Deno.test("StreamedBody fails instead of growing when the writer does not wait", async () => {
  let goneCount = 0;
  const body = new StreamedBody(() => goneCount++);
  for (let count = 0; count < 70; count++) void body.write(new Uint8Array(1024 * 1024));
  assert.equal(goneCount, 1);
  await assert.rejects(body[Symbol.asyncIterator]().next(), /bytes wait for the client/);
});
