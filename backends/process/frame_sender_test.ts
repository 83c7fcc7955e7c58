import assert from "node:assert/strict";
import { FrameSender } from "./frame_sender.ts";
import { type Frame, FrameReader } from "./frame.ts";

/** A connection that takes at most so many bytes at a time, and only when it is told to. */
class FakeSink {
  readonly writes: number[] = [];
  readonly frames: Frame[] = [];
  readonly #reader = new FrameReader();
  readonly #most: number;
  #next: (() => void) | undefined;

  constructor(most = Infinity) {
    this.#most = most;
  }

  write(bytes: Uint8Array): Promise<number> {
    assert.equal(this.#next, undefined);
    return new Promise((resolve) => {
      this.#next = () => {
        this.#next = undefined;
        const count = Math.min(bytes.length, this.#most);
        this.writes.push(count);
        this.#take(bytes.subarray(0, count));
        resolve(count);
      };
    });
  }

  /** Writes everything that there is. */
  async drain(): Promise<void> {
    await settled();
    for (; this.#next !== undefined; await settled()) this.#next();
  }

  #take(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length;) {
      const room = this.#reader.room();
      const count = Math.min(room.length, bytes.length - at);
      room.set(bytes.subarray(at, at + count));
      this.#reader.received(count);
      at += count;
      let frame = this.#reader.next();
      for (; frame !== undefined; frame = this.#reader.next()) this.frames.push(frame);
    }
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await undefined;
}

const ids = ({ frames }: FakeSink) => frames.map(({ id }) => id);
const fail = (reason: unknown) => assert.fail(String(reason));
const payloadOf = (byteSize: number, value: number) => ({
  parts: [new Uint8Array(byteSize).fill(value)],
  byteSize,
});

Deno.test("frames of one step leave with one write", async () => {
  const sink = new FakeSink();
  const sender = new FrameSender(sink, fail);
  for (const id of [1, 2, 3]) sender.send(7, id, `{"n":${id}}`);
  await sink.drain();
  assert.deepEqual([sink.writes.length, ids(sink)], [1, [1, 2, 3]]);
  assert.deepEqual(sink.frames[2]!.json, { n: 3 });
  sender.send(7, 4);
  await sink.drain();
  assert.deepEqual([sink.writes.length, ids(sink)], [2, [1, 2, 3, 4]]);
});

Deno.test("frames that come while others are written follow with one write", async () => {
  const sink = new FakeSink();
  const sender = new FrameSender(sink, fail);
  sender.send(7, 1);
  await settled();
  sender.send(7, 2);
  sender.send(7, 3);
  await sink.drain();
  assert.deepEqual([sink.writes.length, ids(sink)], [2, [1, 2, 3]]);
});

Deno.test("frames of all sizes keep their order and their bytes, however little is taken", async () => {
  for (const most of [1000, 50_000, Infinity]) {
    const sink = new FakeSink(most);
    const sender = new FrameSender(sink, fail);
    const sizes = [10, 70_000, 5, 30_000, 30_000, 30_000, 200_000, 0, 1];
    sizes.forEach((size, index) => sender.send(9, index, "", payloadOf(size, index)));
    await settled();
    sizes.forEach((size, index) => sender.send(9, 10 + index, "", payloadOf(size, 10 + index)));
    await sink.drain();
    assert.deepEqual(sink.frames.map(({ payload }) => payload.length), [...sizes, ...sizes]);
    assert.ok(sink.frames.every(({ id, payload }) => payload.every((value) => value === id)));
  }
});

Deno.test("a connection that ends tells why, once", async () => {
  const reasons: unknown[] = [];
  const sender = new FrameSender(
    { write: () => Promise.reject(new Error("broken")) },
    (reason) => void reasons.push(reason),
  );
  sender.send(7, 1);
  sender.send(7, 2);
  await settled();
  assert.deepEqual(reasons.map(String), ["Error: broken"]);
});
