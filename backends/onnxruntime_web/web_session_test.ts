import assert from "node:assert/strict";
import { WebSession } from "./web_session.ts";
import type { FromWorker, SessionRequest } from "./worker_protocol.ts";

const REQUEST: SessionRequest = {
  path: "/nowhere/model.onnx",
  externalFiles: [],
  provider: "wasm",
  threadCount: 1,
  graphOptimizationLevel: "all",
  executionMode: "sequential",
  isDeviceOnly: false,
  entries: {},
};
const LOADED: FromWorker = { kind: "loaded", version: "1", inputs: [], outputs: [] };

/** A Worker that gives these answers, one per question. */
function fakeWorker(answers: readonly FromWorker[]) {
  const left = [...answers];
  const fake = {
    onmessage: undefined as ((event: { data: FromWorker }) => void) | undefined,
    onerror: undefined as unknown,
    isTerminated: false,
    postMessage() {
      const data = left.shift();
      if (data !== undefined) queueMicrotask(() => fake.onmessage?.({ data }));
    },
    terminate: () => void (fake.isTerminated = true),
  };
  return fake;
}

function open(fake: ReturnType<typeof fakeWorker>): Promise<WebSession> {
  return WebSession.open(REQUEST, { startWorker: () => fake as unknown as Worker });
}

Deno.test("WebSession ends its Worker when the model cannot be loaded", async () => {
  const failed = { kind: "failed", message: "no", isInput: false, isFatal: false } as const;
  const fake = fakeWorker([failed]);
  await assert.rejects(open(fake), { code: "INTERNAL", message: "onnx runtime error: no" });
  assert.equal(fake.isTerminated, true);
});

Deno.test("WebSession.run() fails when the Worker ends, and after it", async () => {
  const fake = fakeWorker([LOADED]);
  const session = await open(fake);
  const ends: string[] = [];
  session.onEnd = (reason) => ends.push(reason);
  const running = session.run([], ["Y"]);
  session.end("it broke");
  await assert.rejects(running, { code: "UNAVAILABLE", message: /ended: it broke$/ });
  await assert.rejects(session.run([], ["Y"]), { code: "UNAVAILABLE" });
  assert.deepEqual(ends, ["it broke"]);
});

Deno.test("WebSession ends after a failure that the runtime does not survive, not after others", async () => {
  const failed = { kind: "failed", message: "no", isInput: false } as const;
  const fake = fakeWorker([
    LOADED,
    { ...failed, isFatal: false },
    { ...failed, message: "Aborted()", isFatal: true },
  ]);
  const session = await open(fake);
  await assert.rejects(session.run([], ["Y"]), /no/);
  assert.equal(session.endReason, undefined);
  await assert.rejects(session.run([], ["Y"]), /Aborted/);
  assert.match(session.endReason ?? "", /Aborted/);
  assert.equal(fake.isTerminated, true);
});
