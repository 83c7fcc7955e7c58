import assert from "node:assert/strict";
import type { TraceOptions } from "./options_trace.ts";
import { createSpans } from "./trace_spans.ts";
import type { Trace } from "./trace.ts";
import { toHex } from "./trace_context.ts";
import { TraceFixture } from "./trace_fixture.ts";

const TRACE = "0af7651916cd43dd8448eb211c12666c";
const CLIENT = { traceparent: `00-${TRACE}-b7ad6b7169242424-01`, tracestate: "a=1" };
const values = { levels: ["TIMESTAMPS"], rate: 1, count: -1, logFrequency: 0 } as const;

function start(mode: TraceOptions["mode"], fields: Record<string, string> = {}): Trace {
  const { tracer } = new TraceFixture({ mode, values });
  return tracer.start("m", { get: (name) => fields[name] }) as Trace;
}

function parts(trace: Trace): string[] {
  return JSON.parse(trace.context!).traceparent.split("-");
}

Deno.test("Trace.context is there in mode opentelemetry only", () => {
  assert.equal(start("triton", CLIENT).context, undefined);
  assert.match(
    start("opentelemetry").context!,
    /^\{"traceparent":"00-[0-9a-f]{32}-[0-9a-f]{16}-01"\}$/,
  );
});

Deno.test("Trace.context names the span of the request in the client's trace", () => {
  const trace = start("opentelemetry", CLIENT);
  const [version, traceId, spanId] = parts(trace);
  assert.deepEqual([version, traceId], ["00", TRACE]);
  assert.notEqual(spanId, "b7ad6b7169242424");
  assert.equal(JSON.parse(trace.context!).tracestate, "a=1");
  assert.equal(trace.context, trace.context);
  const child = trace.createChild()!;
  assert.equal(parts(child)[1], TRACE);
  assert.notEqual(parts(child)[2], spanId);
});

Deno.test("createSpans() gives a request the span that its model was told of", () => {
  const trace = start("opentelemetry");
  trace.begin({ name: "m", version: "1", requestId: "", startMs: 1 });
  const [, traceId, spanId] = parts(trace);
  let last = 100;
  const spans = createSpans(trace.record, {
    randomBytes: (count) => new Uint8Array(count).fill(++last),
    toWallNs: (ms) => BigInt(ms),
  });
  assert.deepEqual(spans.map((span) => [span.name, toHex(span.traceId)]), [
    ["InferRequest", traceId],
    ["m", traceId],
  ]);
  assert.equal(toHex(spans[1]!.spanId), spanId);
});

Deno.test("Trace.createChild() gives none when the request is over, and a late one writes nothing", async () => {
  const traces = new TraceFixture({ values });
  const trace = traces.tracer.start("m", { get: () => undefined }) as Trace;
  trace.mark("HTTP_RECV_START");
  const late = trace.createChild()!;
  trace.end();
  assert.equal(trace.createChild(), undefined);
  late.begin({ name: "late", version: "1", requestId: "", startMs: 1 });
  late.finish();
  await traces.tracer.close();
  assert.ok(!traces.files.get("t.json")?.includes("late"));
});
