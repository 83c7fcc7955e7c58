import assert from "node:assert/strict";
import type { ModelCall } from "./model_api.ts";
import { ModelCalls } from "./worker_calls.ts";
import { WorkerPort } from "./worker_port.ts";
import { FRAME, type FromWorker, OUTCOME, WINDOW } from "./worker_protocol.ts";
import { FrameReceiver, FrameSender } from "./frame_link.ts";

function open() {
  const messages: FromWorker[] = [];
  let frameCount = 0;
  const toServer = new FrameReceiver();
  const calls = new ModelCalls(
    new WorkerPort((message) => {
      const frame = toServer.receive(message);
      if (frame !== undefined) {
        frameCount++;
        frame.release();
      } else if ((message as FromWorker).kind !== "ring") messages.push(message as FromWorker);
    }),
  );
  calls.areAllowed = true;
  const fromServer = new FrameReceiver();
  const sender = new FrameSender((message) => {
    const frame = fromServer.receive(message);
    if (frame === undefined) return;
    assert.equal(frame.reader.u8(), FRAME.reply);
    calls.receive(frame.reader);
    frame.release();
  });
  const reply = (id: number, isFinal: boolean) =>
    sender.send((frame) =>
      frame.u8(FRAME.reply).u32(id).u8(Number(isFinal)).u8(OUTCOME.response)
        .text("other").text("1").text("").parameters({}).u32(0)
    );
  return { calls, messages, reply, frames: () => frameCount };
}

const INPUTS = { inputs: {} };

Deno.test("infer() refuses what no request can have, and nothing is sent", async () => {
  const wrong: [object, RegExp][] = [
    [{ modelVersion: 3 }, /'modelVersion' of a call must be a text, got 3/],
    [{ id: 7n }, /'id'/],
    [{ priority: -1 }, /'priority'/],
    [{ priority: 0.5 }, /'priority'/],
    [{ timeoutUs: NaN }, /'timeoutUs'/],
    [{ timeoutUs: Infinity }, /'timeoutUs'/],
    [{ correlationId: 5 }, /'correlationId' of a call must be a bigint or a text, got 5/],
    [{ correlationId: -1n }, /must fit into 64 bits, got -1/],
    [{ correlationId: 2n ** 64n }, /must fit into 64 bits/],
  ];
  const { calls, frames } = open();
  for (const [given, text] of wrong) {
    await assert.rejects(calls.infer("other", { ...INPUTS, ...given } as ModelCall), text);
  }
  assert.equal(frames(), 0);
  await assert.rejects(calls.infer("", INPUTS), /Name of the model/);
  calls.areAllowed = false;
  await assert.rejects(calls.infer("other", INPUTS), /only supported during/);
});

Deno.test("inferStream() counts what was taken, and gives up what is left", async () => {
  const { calls, messages, reply } = open();
  let count = 0;
  const stream = calls.inferStream("other", INPUTS);
  const first = stream.next();
  for (let sent = 0; sent < WINDOW.size; sent++) reply(1, false);
  assert.equal((await first).value.modelName, "other");
  for await (const { modelVersion } of stream) {
    assert.equal(modelVersion, "1");
    if (++count === WINDOW.step) break;
  }
  assert.deepEqual(messages, [
    { kind: "callTaken", call: 1, count: WINDOW.step },
    { kind: "cancelCall", call: 1, isAbandoned: true },
  ]);
  // Those under way go nowhere.
  reply(1, false);
  reply(1, true);
  assert.equal(messages.length, 2);
});

Deno.test("a call whose signal is aborted is cancelled, and still heard", async () => {
  const { calls, messages, reply } = open();
  const abort = new AbortController();
  const answer = calls.infer("other", { ...INPUTS, signal: abort.signal });
  abort.abort();
  assert.deepEqual(messages, [{ kind: "cancelCall", call: 1, isAbandoned: false }]);
  reply(1, true);
  assert.equal((await answer).modelName, "other");
  await assert.rejects(calls.infer("other", { ...INPUTS, signal: abort.signal }));
});
