import assert from "node:assert/strict";
import { WorkerLink } from "./worker_link.ts";

function fakeLink() {
  const calls: string[] = [];
  const worker = {
    onmessage: undefined as undefined | ((event: { data: unknown }) => void),
    postMessage: () => {},
    terminate: () => calls.push("terminate"),
  };
  const link = new WorkerLink(worker as unknown as Worker, {
    onFrame: ({ reader }) => void reader.tensor("X"),
    onMessage: ({ kind }) => void calls.push(kind),
    onEnd: (reason) => void calls.push(reason),
  });
  return { link, calls, receive: (data: unknown) => worker.onmessage!({ data }) };
}

Deno.test("a Worker that sends what cannot be is ended, and what waits for it fails", async () => {
  const ring = { kind: "ring", buffer: new SharedArrayBuffer(256) };
  new Uint8Array(ring.buffer).fill(0xff);
  for (const message of [65, null, [7], 128, new SharedArrayBuffer(1)]) {
    const { link, calls, receive } = fakeLink();
    receive(ring);
    const asked = link.ask({ what: "ping" });
    receive(message);
    await assert.rejects(asked, /its Worker ended: it sent a message that cannot be/);
    assert.equal(calls[0], "terminate");
    receive({ kind: "log" });
    assert.equal(calls.length, 2);
  }
});

Deno.test("an answer to no question is nobody's", () => {
  const { link, receive } = fakeLink();
  receive({ kind: "answer", id: 9, value: 1 });
  assert.equal(link.endReason, undefined);
});
