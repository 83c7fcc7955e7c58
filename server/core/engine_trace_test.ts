import assert from "node:assert/strict";
import type { Span } from "../../proto/otlp.ts";
import { EngineFixture, inferRequest } from "./engine_fixture.ts";
import type { TraceOptions } from "./options_trace.ts";
import type { TraceSink } from "./trace_setting.ts";
import { spanTree, TraceFixture } from "./trace_fixture.ts";
import { createSpans } from "./trace_spans.ts";
import { TraceRecord } from "./trace.ts";

const ON = { levels: ["TIMESTAMPS"], rate: 1, count: -1, logFrequency: 0 } as const;
const NO_FIELDS = { get: () => undefined };

interface Entry {
  readonly [key: string]: unknown;
  readonly id: number;
  readonly timestamps?: readonly { readonly name: string; readonly ns: number }[];
}

const MODELS = {
  m: { executeMs: 3 },
  e: {
    config: {
      backend: "",
      platform: "ensemble",
      instanceGroup: [],
      schedulingChoice: {
        case: "ensembleScheduling" as const,
        value: {
          step: [
            { modelName: "m", modelVersion: -1n, inputMap: { IN: "IN" }, outputMap: { OUT: "t" } },
            { modelName: "m", modelVersion: -1n, inputMap: { IN: "t" }, outputMap: { OUT: "OUT" } },
          ],
        },
      },
    },
  },
};

interface TracedEngine {
  readonly fixture: EngineFixture;
  readonly traces: TraceFixture;
}

async function start(options: Partial<TraceOptions>): Promise<TracedEngine> {
  const traces = new TraceFixture(options, {
    clock: {
      now: () => fixture.clock.now(),
      wallNow: () => fixture?.clock.wallNow() ?? 0,
      setTimer: (delayMs, callback) => fixture.clock.setTimer(delayMs, callback),
    },
  });
  const fixture: EngineFixture = new EngineFixture(MODELS, {}, { tracer: traces.tracer });
  await fixture.start();
  return { fixture, traces };
}

/** Runs a request as a frontend would; gives what became of it. */
async function infer(
  { fixture: { engine, clock } }: TracedEngine,
  model: string,
  change: Parameters<typeof inferRequest>[1] = {},
): Promise<unknown> {
  const trace = engine.startTrace({ name: model, version: "" }, NO_FIELDS);
  trace?.mark("HTTP_RECV_START");
  const answer = engine.infer(inferRequest(model, change), { trace }).catch((error) => error);
  await clock.advance(50);
  trace?.mark("HTTP_SEND_END");
  trace?.end();
  return await answer;
}

async function entriesOf({ traces }: TracedEngine): Promise<Entry[]> {
  await traces.tracer.close();
  return JSON.parse(traces.files.get("t.json") ?? "[]");
}

function names(entries: readonly Entry[], id: number): string[] {
  return entries.filter((entry) => entry.id === id).flatMap(({ timestamps = [] }) =>
    timestamps.map(({ name }) => name)
  );
}

Deno.test("a traced request tells its model, its id and every point of time in order", async () => {
  const engine = await start({ values: ON });
  await infer(engine, "m", { id: "r1" });
  const entries = await entriesOf(engine);
  assert.deepEqual(entries[0], {
    id: 1,
    "model_name": "m",
    "model_version": 1,
    "request_id": "r1",
  });
  assert.deepEqual(names(entries, 1), [
    "HTTP_RECV_START",
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
    "HTTP_SEND_END",
  ]);
  const times = entries.flatMap(({ timestamps = [] }) => timestamps.map(({ ns }) => ns));
  assert.deepEqual(times, times.toSorted((a, b) => a - b));
  assert.equal(times.at(-1)! - times[0]!, 50e6);
});

Deno.test("steps of an ensemble are traces with a parent, written together with it", async () => {
  const engine = await start({ values: ON });
  await infer(engine, "e");
  const entries = await entriesOf(engine);
  const starts = entries.filter((entry) => "model_name" in entry);
  assert.deepEqual(
    starts.map(({ id, model_name: name, parent_id: parent }) => [id, name, parent]),
    [[1, "e", undefined], [2, "m", 1], [3, "m", 1]],
  );
  assert.equal(names(entries, 1).includes("COMPUTE_START"), false);
  assert.equal(names(entries, 1).includes("QUEUE_START"), true);
  assert.equal(names(entries, 2).includes("COMPUTE_START"), true);
  assert.equal(names(entries, 2).includes("INFER_RESPONSE_COMPLETE"), false);
});

Deno.test("level TENSORS writes the tensors at the queue, the instance and its answer", async () => {
  const engine = await start({ values: { ...ON, levels: ["TENSORS"] } });
  await infer(engine, "m", { rows: 2 });
  const entries = await entriesOf(engine);
  const tensor = { data: "1,1", shape: "2,1", dtype: "FP32" };
  assert.deepEqual(entries.slice(1), [
    { id: 1, activity: "TENSOR_QUEUE_INPUT", tensor: { name: "IN", ...tensor } },
    { id: 1, activity: "TENSOR_BACKEND_INPUT", tensor: { name: "IN", ...tensor } },
    { id: 1, activity: "TENSOR_BACKEND_OUTPUT", tensor: { name: "OUT", ...tensor } },
  ]);
});

Deno.test("a refused request has a trace that ends, one for an unknown model has none", async () => {
  const engine = await start({ values: { ...ON, count: 9 } });
  await infer(engine, "m", { inputs: [] });
  await infer(engine, "nobody");
  await infer(engine, "m", { modelVersion: "7" });
  const { engine: api } = engine.fixture;
  assert.equal(api.startTrace({ name: "m", version: "7" }, NO_FIELDS), undefined);
  const count = api.traceSetting("m").find(([name]) => name === "trace_count");
  assert.deepEqual(count?.[1], ["7"]);
  assert.deepEqual(names(await entriesOf(engine), 1), ["HTTP_RECV_START", "HTTP_SEND_END"]);
});

Deno.test("a request whose client has gone is traced until the core lets go of it", async () => {
  const engine = await start({ values: ON });
  const { engine: api, clock } = engine.fixture;
  const trace = api.startTrace({ name: "m", version: "" }, NO_FIELDS);
  const gone = AbortSignal.abort();
  const answer = api.infer(inferRequest("m"), { trace, signal: gone }).catch((error) => error);
  trace!.end();
  await clock.advance(50);
  assert.equal((await answer).code, "CANCELLED");
  assert.deepEqual(names(await entriesOf(engine), 1), [
    "REQUEST_START",
    "QUEUE_START",
    "REQUEST_END",
  ]);
});

Deno.test("nothing is looked at while nothing is traced", async () => {
  const { fixture } = await start({});
  const fields = { get: () => assert.fail("no field is read") };
  assert.equal(fixture.engine.startTrace({ name: "m", version: "" }, fields), undefined);
  assert.equal(fixture.engine.traceTime(), 0);
  fixture.engine.traceSetting("m", { levels: ["TIMESTAMPS"] });
  assert.equal(fixture.engine.traceTime(), fixture.clock.now());
  assert.throws(() => fixture.engine.traceSetting("nobody"), {
    code: "INVALID_ARG",
    message: "Request for unknown model : nobody",
  });
});

Deno.test("spans nest as requests do, below the span of the client", async () => {
  const engine = await start({ values: ON });
  const { engine: api, clock } = engine.fixture;
  const spans: Span[] = [];
  const now = () => clock.now();
  let lastByte = 0;
  const parts = {
    randomBytes: (count: number) => new Uint8Array(count).fill(++lastByte),
    toWallNs: (ms: number) => BigInt(Math.round(ms * 1e6)),
  };
  const sink: Pick<TraceSink, "write"> = {
    write: (record) => spans.push(...createSpans(record, parts)),
  };
  const { root } = new TraceRecord({
    timestamps: true,
    tensors: false,
    nextId: () => ++lastByte,
    now,
    context: {
      traceId: "0af7651916cd43dd8448eb211c12666c",
      spanId: "b7ad6b7169242424",
      state: "a=1",
    },
    onComplete: (record) => sink.write(record),
  });
  root.mark("HTTP_RECV_START");
  const answer = api.infer(inferRequest("e", { id: "r" }), { trace: root });
  await clock.advance(50);
  await answer;
  root.end();
  assert.deepEqual(spanTree(spans), [
    ">InferRequest",
    "InferRequest>e",
    "e>m",
    "m>compute",
    "e>m",
    "m>compute",
  ]);
  assert.equal(spans[0]!.parentSpanId[0], 0xb7);
  assert.ok(spans.every(({ traceId, traceState }) => traceId[0] === 0x0a && traceState === "a=1"));
  const events = spans.map(({ name, events }) => [name, events.map((event) => event.name).join()]);
  assert.deepEqual(events.slice(0, 4), [
    ["InferRequest", "HTTP_RECV_START,INFER_RESPONSE_COMPLETE"],
    ["e", "REQUEST_START,QUEUE_START,REQUEST_END"],
    ["m", "REQUEST_START,QUEUE_START,REQUEST_END"],
    ["compute", "COMPUTE_START,COMPUTE_INPUT_END,COMPUTE_OUTPUT_START,COMPUTE_END"],
  ]);
  const [, ensemble, first] = spans;
  const attributes = new Map(ensemble!.attributes);
  assert.equal(attributes.get("triton.request_id"), "r");
  assert.equal(attributes.get("triton.trace_parent_id"), 0);
  assert.equal(new Map(first!.attributes).get("triton.trace_parent_id"), root.id);
  assert.ok(ensemble!.startNs <= first!.startNs && first!.endNs <= ensemble!.endNs);
});
