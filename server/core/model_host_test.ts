import assert from "node:assert/strict";
import type { ExecuteRequest } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import { inferRequest } from "./engine_fixture.ts";
import { DECOUPLED, released, response, setUpHost, STREAMED } from "./model_host_fixture.ts";
import { TraceFixture } from "./trace_fixture.ts";

const TRACED = {
  values: { levels: ["TIMESTAMPS"], rate: 1, count: -1, logFrequency: 0 },
} as const;
type Call = ReturnType<Awaited<ReturnType<typeof setUpHost>>["call"]>;

Deno.test("ModelHost.infer() runs a request through the model's scheduler, and counts it", async () => {
  const { call, clock, engine, executions } = await setUpHost({
    m: { versions: [1, 2], executeMs: 5, outcome: ({ id }) => response(Number(id)) },
  });
  const calls = ["", "-1", "1", "2"].map((modelVersion, index) =>
    call("m", { modelVersion, id: String(index + 1) })
  );
  await clock.advance(4);
  assert.ok(calls.every(({ isOver }) => !isOver));
  await clock.advance(50);
  assert.deepEqual(calls.map(({ log, isOver }) => [...log, isOver]), [
    ["1!", true],
    ["2!", true],
    ["3!", true],
    ["4!", true],
  ]);
  assert.deepEqual(released.sort(), [1, 2, 3, 4]);
  assert.deepEqual(engine.metrics().versions.map(({ success }) => success), [1, 3]);
  assert.equal(executions.length, 4);
});

Deno.test("ModelHost.infer() hands on all that a request says", async () => {
  const { call, clock, executions } = await setUpHost({ m: { outcome: () => response(1) } });
  const change = {
    id: "x",
    correlationId: 7n,
    sequenceStart: true,
    priority: 2,
    timeoutUs: 11_000_000_000,
    parameters: { a: "b" },
  };
  call("m", change);
  await clock.advance(1);
  const [{ id, correlationId, sequenceStart, priority, timeoutUs, parameters }] = executions[0]!
    .requests as [ExecuteRequest];
  assert.deepEqual(
    { id, correlationId, sequenceStart, priority, timeoutUs, parameters },
    change,
  );
});

Deno.test("ModelHost.infer() tells refusals in the reference's words", async () => {
  const { call, clock, engine } = await setUpHost({ m: {}, stream: { config: DECOUPLED } });
  const cases: [Call, RegExp][] = [
    [call("ghost"), /^NOT_FOUND Request for unknown model: 'ghost' is not found!$/],
    [
      call("m", { modelVersion: "9" }),
      /^NOT_FOUND Failed for execute the inference request\. Model 'm' is not ready\. \(.*version 9 is not found\)!$/,
    ],
    [call("m", { modelVersion: "-2" }), /^INVALID_ARG invalid model version specified '-2'/],
    [
      call("stream"),
      /^INVALID_ARG Model stream is using the decoupled\. The current BLS request call doesn't support models using the decoupled transaction policy\. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models\.'!$/,
    ],
    [call("m", { inputs: [] }), /^INVALID_ARG .*expected 1 inputs but got 0/],
  ];
  await clock.advance(1);
  for (const [{ log, isOver }, text] of cases) {
    assert.equal(log.length, 1);
    assert.match(log[0]!, text);
    assert.equal(isOver, true);
  }
  assert.ok(engine.metrics().versions.every(({ received }) => received === 0));
});

Deno.test("ModelHost.infer() tells refusals from failures of the model that was called", async () => {
  const { host, clock } = await setUpHost({
    m: { outcome: () => ({ error: new ServerError("NOT_FOUND", "no luck") }) },
  });
  const errors: ServerError[] = [];
  for (const model of ["m", "ghost"]) {
    void host.infer(inferRequest(model), (message) => {
      if ("error" in message) errors.push(message.error);
      return undefined;
    }, { decoupled: true });
    await clock.advance(1);
  }
  assert.deepEqual(errors.map(({ code, isRefusal }) => [code, isRefusal]), [
    ["NOT_FOUND", false],
    ["NOT_FOUND", true],
  ]);
});

Deno.test("ModelHost.infer() hands on streams, and the receiver's wish to wait", async () => {
  let request!: ExecuteRequest;
  const gate = Promise.withResolvers<void>();
  const { call, clock, inflight } = await setUpHost({
    m: { outcome: () => response(5) },
    stream: {
      config: DECOUPLED,
      outcome: (each) => {
        request = each;
        return STREAMED;
      },
    },
  });
  const stream = call("stream", { decoupled: true, hold: () => gate.promise });
  const plain = call("m", { decoupled: true });
  await clock.advance(1);
  assert.equal(request.send(response(1), false), gate.promise);
  request.send({ error: new ServerError("INTERNAL", "hiccup") }, false);
  assert.equal(stream.isOver, false);
  request.send(undefined, true);
  await clock.settle();
  assert.deepEqual(stream, { log: ["1", "INTERNAL hiccup", "!"], isOver: true });
  assert.deepEqual(plain, { log: ["5!"], isOver: true });
  assert.deepEqual(inflight(), [0, 0]);
  assert.deepEqual(released.sort(), [1, 5]);
});

Deno.test("ModelHost.infer() gives a call up when it is cancelled, waiting or running", async () => {
  let running!: ExecuteRequest;
  const { call, clock, inflight, engine } = await setUpHost({
    m: {
      executeMs: 10,
      outcome: (each) => {
        running = each;
        return response(1);
      },
    },
  });
  const controllers = [0, 1].map(() => new AbortController());
  const [first, second] = controllers.map(({ signal }) => call("m", { signal }));
  await clock.advance(5);
  for (const controller of controllers) controller.abort();
  await clock.settle();
  assert.deepEqual(second, { log: ["CANCELLED !"], isOver: true });
  assert.equal(first!.isOver, false, "its buffers are in use");
  await clock.advance(5);
  assert.equal(running.signal!.aborted, true);
  assert.deepEqual(first, { log: ["CANCELLED !"], isOver: true });
  assert.deepEqual(released, [1]);
  assert.deepEqual(inflight(), [0]);
  assert.equal(engine.metrics().versions[0]!.failures.CANCELED, 1);
});

Deno.test("ModelHost.infer() passes on what a decoupled model still sends when it is cancelled", async () => {
  let running!: ExecuteRequest;
  const { call, clock, inflight } = await setUpHost({
    m: {
      config: DECOUPLED,
      outcome: (each) => {
        running = each;
        return STREAMED;
      },
    },
  });
  const controller = new AbortController();
  const asked = call("m", { decoupled: true, signal: controller.signal });
  await clock.advance(5);
  running.send(response(1), false);
  controller.abort();
  running.send(response(2), true);
  await clock.advance(5);
  assert.equal(running.signal!.aborted, true);
  assert.deepEqual(asked, { log: ["1", "2!"], isOver: true });
  assert.deepEqual(inflight(), [0]);
});

Deno.test("ModelHost.infer() ends a model that calls itself without end", async () => {
  let deepest = 0;
  const { call, clock, inflight, host } = await setUpHost({
    m: {
      config: DECOUPLED,
      outcome: (request) => {
        deepest++;
        void host.infer(inferRequest("m"), (message) => {
          // Between a model and the server there is always a step of the event loop.
          if ("error" in message) queueMicrotask(() => request.send(message, true));
          return undefined;
        }, { decoupled: true });
        return STREAMED;
      },
    },
  });
  const outermost = call("m", { decoupled: true });
  for (let round = 0; round < 1000 && !outermost.isOver; round++) await clock.advance(100);
  assert.equal(deepest, 8192);
  assert.equal(outermost.isOver, true);
  assert.match(outermost.log[0]!, /^UNAVAILABLE cannot call model 'm': 8192 calls .* without end/);
  assert.deepEqual(inflight(), [0]);
});

Deno.test("ModelHost.infer() spares the model called when the receiver fails", async () => {
  const { host, clock, inflight } = await setUpHost({ m: { outcome: () => response(1) } });
  let isOver = false;
  void host.infer(inferRequest("m"), () => {
    throw new TypeError("broken pipe");
  }, { decoupled: false }).then(() => isOver = true);
  await clock.advance(1);
  assert.equal(isOver, true);
  assert.deepEqual(released, [1]);
  assert.deepEqual(inflight(), [0]);
});

Deno.test("ModelHost.infer() makes a call a child of the trace it is given, as long as that lasts", async () => {
  const traces = new TraceFixture(TRACED, {
    clock: {
      now: () => set?.clock.now() ?? 0,
      wallNow: () => set?.clock.wallNow() ?? 0,
      setTimer: (delayMs, callback) => set!.clock.setTimer(delayMs, callback),
    },
  });
  let set: Awaited<ReturnType<typeof setUpHost>> | undefined;
  const requests: ExecuteRequest[] = [];
  const { engine, clock, call } = set = await setUpHost(
    {
      m: { outcome: () => response(1) },
      caller: {
        config: DECOUPLED,
        outcome: (request) => {
          requests.push(request);
          request.trace!.mark("my_activity");
          return STREAMED;
        },
      },
    },
    {},
    { tracer: traces.tracer },
  );
  const trace = engine.startTrace({ name: "caller", version: "" }, { get: () => undefined })!;
  void engine.inferStream(inferRequest("caller"), () => undefined, { trace });
  await clock.advance(1);
  call("m", { trace: requests[0]!.trace });
  call("ghost", { trace: requests[0]!.trace });
  await clock.advance(1);
  requests[0]!.send(undefined, true);
  trace.end();
  await clock.advance(1);
  const late = call("m", { trace: requests[0]!.trace });
  await clock.advance(1);
  assert.equal(late.log.length, 1);
  await traces.tracer.close();
  const entries: {
    id: number;
    parent_id?: number;
    model_name?: string;
    timestamps?: { name: string }[];
  }[] = JSON.parse(traces.files.get("t.json")!);
  const starts = entries.filter(({ model_name }) => model_name !== undefined);
  assert.deepEqual(starts.map(({ model_name, parent_id }) => [model_name, parent_id]), [
    ["caller", undefined],
    ["m", starts[0]!.id],
  ]);
  const marks = entries.flatMap(({ timestamps = [] }) => timestamps.map(({ name }) => name));
  assert.equal(marks.filter((name) => name === "my_activity").length, 1);
  assert.equal(marks.filter((name) => name === "REQUEST_END").length, 2);
});
