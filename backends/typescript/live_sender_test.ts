import assert from "node:assert/strict";
import type { ExecuteResponse } from "../backend.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { LiveSender } from "./live_sender.ts";
import type { ToWorker } from "./worker_protocol.ts";

function sender(hold?: () => Promise<void> | undefined, signal?: AbortSignal) {
  const sent: (readonly [ExecuteResponse | undefined, boolean])[] = [];
  const posted: ToWorker[] = [];
  const request = executeRequest({
    inputs: [],
    outputs: [],
    signal,
    send(response, isFinal) {
      sent.push([response, isFinal]);
      return hold?.();
    },
  });
  return { sent, posted, live: new LiveSender(4, request, (message) => posted.push(message)) };
}

const RESPONSE: ExecuteResponse = { outputs: [] };

Deno.test("LiveSender tells after every eighth response that they were taken", () => {
  const { live, sent, posted } = sender();
  for (let count = 0; count < 17; count++) live.send(RESPONSE, false);
  assert.equal(sent.length, 17);
  assert.deepEqual(posted, [1, 2].map(() => ({ kind: "taken", request: 4, count: 8 })));
});

Deno.test("LiveSender keeps the order while the receiver is slow, and sends nothing after the end", async () => {
  const held: (() => void)[] = [];
  const { live, sent } = sender(() => new Promise<void>((resolve) => held.push(resolve)));
  const responses = [1, 2, 3].map((value): ExecuteResponse => ({
    outputs: [],
    parameters: { value },
  }));
  for (const response of responses) live.send(response, false);
  live.send(undefined, true);
  live.send(RESPONSE, false);
  for (let count = 1; count <= 4; count++) {
    assert.equal(sent.length, count);
    held[count - 1]!();
    await new Promise((resolve) => queueMicrotask(() => queueMicrotask(() => resolve(undefined))));
    for (let turn = 0; turn < 8; turn++) await Promise.resolve();
  }
  assert.deepEqual(sent, [...responses.map((each) => [each, false]), [undefined, true]]);
});

Deno.test("LiveSender passes cancellation on, until it is closed", () => {
  const controller = new AbortController();
  const { live, posted } = sender(undefined, controller.signal);
  live.begin();
  assert.deepEqual(posted, []);
  controller.abort();
  assert.deepEqual(posted, [{ kind: "cancel", request: 4 }]);
  live.close();
  const late = new AbortController();
  const closed = sender(undefined, late.signal);
  closed.live.close();
  late.abort();
  assert.deepEqual(closed.posted, []);
});

Deno.test("LiveSender tells of a request that was cancelled before it began", () => {
  const { live, posted } = sender(undefined, AbortSignal.abort());
  live.begin();
  assert.deepEqual(posted, [{ kind: "cancel", request: 4 }]);
});
