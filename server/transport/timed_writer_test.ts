import assert from "node:assert/strict";
import { DEFAULT_LIMITS } from "./limits.ts";
import { TimedWriter } from "./timed_writer.ts";

/** A peer that takes as many bytes as it is told to, when it is told to. */
function createPeer() {
  let take: ((count: number) => void) | undefined;
  const taken: number[] = [];
  return {
    taken,
    async take(count: number) {
      take!(count);
      await new Promise((resolve) => setTimeout(resolve));
    },
    connection: {
      read: () => Promise.resolve(null),
      write: (bytes: Uint8Array) =>
        new Promise<number>((resolve) => {
          take = (count) => {
            for (const byte of bytes.subarray(0, count)) taken.push(byte);
            resolve(count);
          };
        }),
      close: () => {},
    },
  };
}

function createContext() {
  const limits = { ...DEFAULT_LIMITS, writeTimeoutMs: 1_000, minBytesPerSecond: 2 };
  return { limits, now: 1 };
}

Deno.test("TimedWriter.isStalled is true when the peer takes nothing, not when it is slow", async () => {
  const peer = createPeer();
  const context = createContext();
  const writer = new TimedWriter(peer.connection, context);
  assert.equal(writer.isStalled, false);
  const bytes = Uint8Array.from({ length: 9 }, (_, index) => index);
  const writing = writer.write(bytes);
  for (const step of [1, 2, 3, 4]) {
    context.now += 900;
    assert.equal(writer.isStalled, false, `after ${step} pauses`);
    await peer.take(2);
  }
  context.now += 1_001;
  assert.equal(writer.isStalled, true);
  await peer.take(1);
  await writing;
  assert.deepEqual(peer.taken, [...bytes]);
  context.now += 10_000;
  assert.equal(writer.isStalled, false, "nothing is being written");
});

Deno.test("TimedWriter.isStalled is true when the peer drips", async () => {
  const peer = createPeer();
  const context = createContext();
  const writer = new TimedWriter(peer.connection, context);
  const writing = writer.write(new Uint8Array(100));
  for (const isStalled of [false, false, true]) {
    context.now += 700;
    assert.equal(writer.isStalled, isStalled);
    await peer.take(1);
  }
  await peer.take(97);
  await writing;
});
