import assert from "node:assert/strict";
import type { CallMessage, CallOptions, ModelHost } from "../backend.ts";
import { fakeHost } from "../model_host_fixture.ts";
import { type ArrivedFrame, FrameReceiver, FrameSender } from "./frame_link.ts";
import { HostCalls } from "./host_calls.ts";
import { WINDOW } from "./worker_protocol.ts";

type Receive = (message: CallMessage) => Promise<void> | undefined;

function start() {
  const made = { receive: undefined as Receive | undefined, signal: undefined as unknown };
  const infer = (_request: unknown, receive: Receive, options: CallOptions) => {
    made.receive = receive;
    made.signal = options.signal;
    return new Promise<void>(() => {});
  };
  const sent: ArrivedFrame[] = [];
  const toWorker = new FrameReceiver();
  const frames = new FrameSender((message) => {
    const frame = toWorker.receive(message);
    if (frame === undefined) return;
    sent.push(frame);
    frame.release();
  });
  const calls = new HostCalls({
    host: fakeHost({ infer: infer as ModelHost["infer"] }),
    frames,
    findRequest: () => undefined,
  });
  calls.start(callFrame());
  return { calls, sent, receive: made.receive!, signal: made.signal as AbortSignal };
}

function callFrame(): ArrivedFrame {
  const receiver = new FrameReceiver();
  const arrived: ArrivedFrame[] = [];
  const sender = new FrameSender((message) => {
    const frame = receiver.receive(message);
    if (frame !== undefined) arrived.push(frame);
  });
  sender.send((frame) =>
    frame.u32(1).u8(1).u32(0).text("called").text("").text("").correlationId(0n)
      .u8(0).f64(0).f64(0).parameters({}).texts([]).u32(0)
  );
  return arrived[0]!;
}

function response(released: { count: number }): CallMessage {
  const infer = {
    modelName: "called",
    modelVersion: "1",
    id: "",
    parameters: {},
    outputs: [],
  };
  return {
    response: infer,
    isFinal: false,
    release: () => void released.count++,
  } as unknown as CallMessage;
}

Deno.test("HostCalls lets a callee wait until its responses were taken", async () => {
  const { calls, receive } = start();
  const released = { count: 0 };
  for (let sent = 1; sent < WINDOW.size; sent++) {
    assert.equal(receive(response(released)), undefined);
  }
  const held = receive(response(released));
  assert.ok(held !== undefined);
  calls.taken(1, WINDOW.step);
  await held;
  assert.equal(released.count, WINDOW.size);
});

Deno.test("HostCalls lets nobody wait for a call that was abandoned, or whose Worker is gone", async () => {
  const ends: ((calls: HostCalls) => void)[] = [
    (calls) => calls.cancel(1, true),
    (calls) => calls.cancelAll(),
  ];
  for (const end of ends) {
    const { calls, receive, signal, sent } = start();
    const released = { count: 0 };
    let held: Promise<void> | undefined;
    for (let count = 0; count < WINDOW.size; count++) held = receive(response(released));
    end(calls);
    await held;
    assert.ok(signal.aborted);
    const before = sent.length;
    // A callee decides itself when it ends.
    for (let count = 0; count < 3 * WINDOW.size; count++) {
      assert.equal(receive(response(released)), undefined);
    }
    assert.equal(sent.length, before);
    assert.equal(released.count, 4 * WINDOW.size);
    assert.equal(receive({ isFinal: true } as CallMessage), undefined);
    assert.equal(sent.length, before + 1);
  }
});
