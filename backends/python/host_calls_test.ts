import assert from "node:assert/strict";
import type { CallMessage, ModelHost } from "../backend.ts";
import { fakeHost } from "../model_host_fixture.ts";
import { ServerError } from "../../proto/status.ts";
import { fakePort, frame } from "../process/frame_port_fixture.ts";
import { HostCalls } from "./host_calls.ts";
import { HostMetrics } from "./host_metrics.ts";
import { StubMemory } from "../process/stub_memory.ts";
import { FRAME } from "./stub_wire.ts";

const LIMITS = { initialByteSize: 4096, growthByteSize: 4096, maxByteSize: 8192 };
const CALL = { model: "other", o: ["B"], n: [["A", "INT32", [1], -1, 0, 4]] };
const DATA = Uint8Array.of(5, 0, 0, 0);
const RESPONSE = {
  modelName: "other",
  modelVersion: "1",
  id: "",
  parameters: { k: 1n },
  outputs: [{ name: "B", datatype: "INT32", shape: [1], data: DATA }],
} as const;

function open(calls: Partial<ModelHost>) {
  const port = fakePort();
  const host = fakeHost(calls);
  const memory = new StubMemory(LIMITS);
  const metrics = new HostMetrics(host);
  const parts = { host, memory, port, peer: undefined, metrics, traceOf: () => undefined };
  return { hostCalls: new HostCalls(parts), port, metrics };
}

const settle = () => new Promise((resolve) => setTimeout(resolve));
const message = (isFinal: boolean, onRelease = () => {}): CallMessage => ({
  response: RESPONSE,
  isFinal,
  release: onRelease,
});

Deno.test("infer calls another model and answers with its outputs once", async () => {
  let releaseCount = 0;
  const { hostCalls, port } = open({
    infer(request, receive, { decoupled }) {
      assert.equal(request.modelName, "other");
      assert.equal(request.modelVersion, "3");
      assert.equal(request.correlationId, 2n ** 60n);
      assert.equal(request.timeoutUs, 11_000_000_000);
      assert.deepEqual(request.inputs[0]!.data, DATA);
      assert.equal(decoupled, false);
      void receive(message(true, () => void releaseCount++));
      return Promise.resolve();
    },
  });
  const json = {
    m: "infer",
    ...CALL,
    version: 3,
    c: { n: "1152921504606846976" },
    t: 11_000_000_000,
  };
  assert.equal(hostCalls.take(frame(FRAME.call, 9, json, DATA)), true);
  await settle();
  assert.deepEqual(port.sent[0]?.body.e, undefined);
  assert.equal(releaseCount, 1);
  assert.deepEqual(port.sent.map(({ kind, id, body }) => ({ kind, id, body })), [{
    kind: FRAME.reply,
    id: 9,
    body: { o: [["B", "INT32", [1], -1, 0, 4]], p: '{"k":1}' },
  }]);
});

Deno.test("errors keep the callee's code, those of requests that no model took have a prefix", async () => {
  const errors = [
    new ServerError("INVALID_ARG", "the model says no"),
    new ServerError("NOT_FOUND", "Request for unknown model: 'other' is not found"),
  ];
  const { hostCalls, port } = open({
    infer(_request, receive) {
      void receive({ error: errors.shift()!, isFinal: true });
      return Promise.resolve();
    },
  });
  hostCalls.take(frame(FRAME.call, 1, { m: "infer", ...CALL }, DATA));
  hostCalls.take(frame(FRAME.call, 2, { m: "infer", ...CALL }, DATA));
  await settle();
  assert.deepEqual(port.sent.map(({ body }) => body), [
    { e: [3, "the model says no"] },
    {
      e: [
        1,
        "Model other - Error when running inference: Request for unknown model: 'other' is not found",
      ],
    },
  ]);
});

Deno.test("a stream waits when 64 of its items are on their way", async () => {
  let sentCount = 0;
  const { hostCalls, port } = open({
    async infer(_request, receive) {
      for (; sentCount < 100; sentCount++) await receive(message(false));
      void receive({ isFinal: true });
    },
  });
  hostCalls.take(frame(FRAME.call, 1, { m: "stream", ...CALL }, DATA));
  await settle();
  assert.equal(port.sent.length, 64);
  hostCalls.take(frame(FRAME.callCredit, 1, { n: 30 }));
  await settle();
  assert.equal(port.sent.length, 94);
  hostCalls.take(frame(FRAME.callCredit, 1, { n: 64 }));
  await settle();
  assert.equal(port.sent.length, 101);
  assert.deepEqual(port.sent.at(-1)!.body, { l: true });
});

Deno.test("a call that is cancelled, or whose process is gone, aborts the request", async () => {
  for (const end of ["cancel", "close"]) {
    let isAborted = false;
    const { hostCalls, port } = open({
      infer: (_request, _receive, { signal }) =>
        new Promise<void>((resolve) =>
          signal!.addEventListener("abort", () => {
            isAborted = true;
            resolve();
          })
        ),
    });
    hostCalls.take(frame(FRAME.call, 1, { m: "stream", ...CALL }, DATA));
    if (end === "cancel") hostCalls.take(frame(FRAME.callCancel, 1));
    else hostCalls.close();
    await settle();
    assert.equal(isAborted, true);
    assert.deepEqual(port.sent, []);
  }
});

Deno.test("model control is handed on, and its errors come back", async () => {
  const loaded: unknown[] = [];
  const { hostCalls, port } = open({
    isModelReady: (name, version) => Promise.resolve(name === "m" && version === "1"),
    loadModel(name, parameters) {
      loaded.push([name, parameters]);
      return Promise.resolve();
    },
    unloadModel: () => Promise.reject(new ServerError("UNAVAILABLE", "not now")),
  });
  hostCalls.take(frame(FRAME.call, 1, { m: "ready", model: "m", version: "1" }));
  const files = [["file:1/model.py", -1, 0, 4]];
  hostCalls.take(frame(FRAME.call, 2, { m: "load", model: "m", config: "{}", files }, DATA));
  hostCalls.take(frame(FRAME.call, 3, { m: "unload", model: "m", dependents: true }));
  hostCalls.take(frame(FRAME.call, 4, { m: "dance" }));
  await settle();
  const bodies = new Map(port.sent.map(({ id, body }) => [id, body]));
  assert.deepEqual(bodies.get(1), { v: true });
  assert.deepEqual(bodies.get(2), { v: null });
  assert.deepEqual(bodies.get(3), { error: [4, "not now"] });
  assert.deepEqual(bodies.get(4), { error: [5, "unknown call 'dance'"] });
  assert.deepEqual(loaded, [["m", { config: "{}", "file:1/model.py": DATA }]]);
});

Deno.test("metrics have numbers, and go with the process", async () => {
  const told: string[] = [];
  const { hostCalls, port, metrics } = open({
    openMetricFamily: (kind, name) => ({
      metric: (labels, buckets) => ({
        increment: (x) => void told.push(`increment ${x}`),
        set: (x) => void told.push(`set ${x}`),
        observe: (x) => void told.push(`observe ${x}`),
        value: () => 4.5,
        [Symbol.dispose]: () => void told.push(`${JSON.stringify(labels)} ${buckets} gone`),
      }),
      [Symbol.dispose]: () => void told.push(`${kind} ${name} gone`),
    }),
  });
  const family = { m: "family", kind: "gauge", name: "g", description: "d" };
  hostCalls.take(frame(FRAME.call, 1, family));
  await settle();
  const number = port.sent[0]!.body.v as number;
  hostCalls.take(frame(FRAME.call, 2, { m: "metric", family: number, labels: { a: "b" } }));
  await settle();
  const metric = port.sent[1]!.body.v as number;
  hostCalls.take(frame(FRAME.call, 3, { m: "increment", metric, x: 2 }));
  hostCalls.take(frame(FRAME.call, 4, { m: "set", metric, x: "-Infinity" }));
  hostCalls.take(frame(FRAME.call, 5, { m: "value", metric }));
  hostCalls.take(frame(FRAME.call, 6, { m: "increment", metric: 77, x: 1 }));
  await settle();
  assert.deepEqual(port.sent[4]!.body, { v: 4.5 });
  assert.ok("error" in port.sent[5]!.body);
  metrics.close();
  assert.deepEqual(told, [
    "increment 2",
    "set -Infinity",
    '{"a":"b"} undefined gone',
    "gauge g gone",
  ]);
});

Deno.test("take() leaves other frames alone, and refuses those that cannot be", () => {
  const { hostCalls } = open({});
  assert.equal(hostCalls.take(frame(FRAME.log, 0)), false);
  assert.throws(() => hostCalls.take(frame(FRAME.call, 1, { m: "infer", model: 5 })), RangeError);
  assert.throws(
    () => hostCalls.take(frame(FRAME.call, 1, { m: "infer", ...CALL, n: [["A"]] })),
    RangeError,
  );
});
