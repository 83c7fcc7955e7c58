import assert from "node:assert/strict";
import { FrameReceiver } from "./frame_link.ts";
import { WorkerPort } from "./worker_port.ts";
import { FRAME, OUTCOME, WINDOW } from "./worker_protocol.ts";
import { RequestState } from "./worker_request_state.ts";

interface Sent {
  readonly isFinal: boolean;
  readonly outcome: number;
}

function request(isDecoupled: boolean) {
  const receiver = new FrameReceiver();
  const sent: Sent[] = [];
  const port = new WorkerPort((message) => {
    const reader = receiver.receive(message)?.reader;
    if (reader === undefined) return;
    assert.deepEqual([reader.u8(), reader.u32()], [FRAME.response, 9]);
    sent.push({ isFinal: reader.u8() === 1, outcome: reader.u8() });
  });
  let overCount = 0;
  const rules = { outputs: new Map(), isDecoupled, isBatching: false };
  const state = new RequestState(9, { port, rules, onOver: () => overCount++ });
  return { state, sent, overCount: () => overCount };
}

const RESPONSE = { outputs: {} };

Deno.test("send() of a model that is not decoupled ends the request with its one response", async () => {
  const { state, sent, overCount } = request(false);
  await state.send(RESPONSE);
  assert.deepEqual(sent, [{ isFinal: true, outcome: OUTCOME.response }]);
  assert.equal(overCount(), 1);
  await assert.rejects(state.send(RESPONSE), { code: "INVALID_ARG", message: /has been closed/ });
});

Deno.test("send() of a model that is not decoupled refuses a second response, and an end without one", async () => {
  const { state } = request(false);
  await assert.rejects(state.send(undefined, true), /complete final before sending a response/);
  await state.send(RESPONSE, false);
  await assert.rejects(state.send(RESPONSE), /more than one response/);
  await state.send(undefined, true);
});

Deno.test("send() of a decoupled model waits when its window is full", async () => {
  const { state, sent } = request(true);
  for (let count = 1; count < WINDOW.size; count++) await state.send(RESPONSE);
  let isFree = false;
  const waiting = state.send(RESPONSE).then(() => isFree = true);
  await Promise.resolve();
  assert.equal(isFree, false);
  assert.equal(sent.length, WINDOW.size);
  state.taken(WINDOW.step);
  await waiting;
  await assert.rejects(state.send(undefined, false), /must be provided/);
});

Deno.test("cancel() aborts the signal and lets waiting senders go on", async () => {
  const { state } = request(true);
  const { signal } = state;
  for (let count = 1; count < WINDOW.size; count++) await state.send(RESPONSE);
  const waiting = state.send(RESPONSE);
  state.cancel();
  await waiting;
  assert.equal(signal.aborted, true);
  assert.equal(request(true).state.signal.aborted, false);
});

Deno.test("a response that is wrong is sent as an error", async () => {
  const { state, sent } = request(true);
  await state.send(5 as never);
  assert.deepEqual(sent, [{ isFinal: false, outcome: OUTCOME.error }]);
});
