import assert from "node:assert/strict";
import type { Tensor } from "../../proto/tensor.ts";
import { type ArrivedFrame, FrameReceiver, FrameSender } from "./frame_link.ts";

function pair() {
  const messages: unknown[] = [];
  const arrived: ArrivedFrame[] = [];
  const receiver = new FrameReceiver();
  const sender = new FrameSender((message) => {
    messages.push(message);
    const frame = receiver.receive(message);
    if (frame !== undefined) arrived.push(frame);
  });
  return { sender, receiver, messages, arrived };
}

function bytes(length: number, seed = 0): Uint8Array {
  const made = new Uint8Array(length);
  for (let index = 0; index < length; index++) made[index] = (index * 7 + seed) % 251;
  return made;
}

function sendBytes(sender: FrameSender, data: Uint8Array): void {
  sender.send((frame) => frame.tensor("UINT8", [data.length], data));
}

Deno.test("a frame arrives as it was written", () => {
  const { sender, arrived } = pair();
  const parameters = {
    truth: true,
    large: 2n ** 64n - 1n,
    negative: -5n,
    half: 0.5,
    text: "schön",
    ["__proto__"]: "own",
  };
  const long = "x".repeat(5000) + "€";
  const data = bytes(100);
  sender.send((frame) =>
    frame.u8(7).u32(4_000_000_000).f64(-0.5).text("").text("short").text(long)
      .correlationId(2n ** 63n).correlationId("seq").parameters(parameters)
      .texts(["a", "b"]).tensor("FP32", [5, 5], data).tensor("BYTES", [0], new Uint8Array())
  );
  const { reader } = arrived[0]!;
  assert.deepEqual([reader.u8(), reader.u32(), reader.f64()], [7, 4_000_000_000, -0.5]);
  assert.deepEqual([reader.text(), reader.text(), reader.text()], ["", "short", long]);
  assert.deepEqual([reader.correlationId(), reader.correlationId()], [2n ** 63n, "seq"]);
  assert.deepEqual(reader.parameters(), parameters);
  assert.deepEqual(reader.texts(), ["a", "b"]);
  const tensor = reader.tensor("A") as Tensor;
  assert.deepEqual({ ...tensor, data: undefined }, {
    name: "A",
    datatype: "FP32",
    shape: [5, 5],
    data: undefined,
  });
  assert.deepEqual([...tensor.data], [...data]);
  assert.equal(tensor.data.byteOffset % 64, 0);
  assert.equal(reader.tensor("B").data.length, 0);
});

Deno.test("FrameSender posts offsets once the ring is known, and uses freed blocks again", () => {
  const { sender, messages, arrived } = pair();
  for (let round = 0; round < 10_000; round++) {
    sendBytes(sender, bytes(64, round));
    const frame = arrived.pop()!;
    assert.equal(frame.reader.tensor("").data[1], (7 + round) % 251);
    frame.release();
    frame.release();
  }
  assert.equal(messages.filter((message) => typeof message !== "number").length, 1);
});

Deno.test("FrameSender takes a larger ring for large frames, while older ones are still read", () => {
  const { sender, messages, arrived } = pair();
  const sizes = [100, 300_000, 100, 1_000_000, 5_000_000];
  for (const size of sizes) sendBytes(sender, bytes(size, size));
  arrived.forEach((frame, index) => {
    const { data } = frame.reader.tensor("");
    assert.equal(data.length, sizes[index]);
    assert.deepEqual(data.subarray(0, 64), bytes(sizes[index]!, sizes[index]).subarray(0, 64));
  });
  assert.ok(messages.filter((message) => typeof message === "object").length <= 4);
});

Deno.test("FrameSender gives a frame memory of its own when nobody frees", () => {
  const { sender, messages, arrived } = pair();
  for (let round = 0; round < 40; round++) sendBytes(sender, bytes(4_000_000, round));
  assert.ok(messages.some((message) => message instanceof SharedArrayBuffer));
  arrived.forEach((frame, round) => {
    assert.equal(frame.reader.tensor("").data[3], (21 + round) % 251);
  });
});

Deno.test("lent memory is sent as a reference", () => {
  const { sender, arrived, messages } = pair();
  const memory = new SharedArrayBuffer(1000);
  sender.lend(memory);
  sender.send((frame) =>
    frame.tensor("UINT8", [10], new Uint8Array(memory, 5, 10)).tensor("UINT8", [3], bytes(3))
  );
  const message = messages.at(-1) as unknown[];
  assert.equal(message[1], memory);
  const { data } = arrived[0]!.reader.tensor("");
  assert.deepEqual([data.buffer, data.byteOffset, data.length], [memory, 5, 10]);
  assert.deepEqual([...arrived[0]!.reader.tensor("").data], [...bytes(3)]);
});

Deno.test("FrameReceiver takes nothing for a frame that is none", () => {
  const { receiver } = pair();
  for (const message of ["text", undefined, null, {}, [], { kind: "log" }]) {
    assert.equal(receiver.receive(message), undefined);
  }
});

Deno.test("FrameReceiver refuses places where no frame can be", () => {
  const { receiver } = pair();
  for (const place of [5, 64, [64]]) assert.throws(() => receiver.receive(place), RangeError);
  receiver.receive({ kind: "ring", buffer: new SharedArrayBuffer(256) });
  for (const place of [0, -64, 65, 256, NaN, 64.5]) {
    assert.throws(() => receiver.receive(place), /no frame at/);
  }
  assert.ok(receiver.receive(128) !== undefined);
});
