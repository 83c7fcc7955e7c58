import assert from "node:assert/strict";
import { DEFAULT_TRACE_OPTIONS, type OpenTelemetryOptions } from "./options_trace.ts";
import { TraceFixture } from "./trace_fixture.ts";

const VALUES = { levels: ["TIMESTAMPS"], rate: 1, count: -1, logFrequency: 0 } as const;

/** Each request of the fixture is one span. */
function create(change: Partial<OpenTelemetryOptions> = {}, parts = {}): TraceFixture {
  return new TraceFixture({
    mode: "opentelemetry",
    file: "",
    values: VALUES,
    openTelemetry: { ...DEFAULT_TRACE_OPTIONS.openTelemetry, url: "http://c/v1/traces", ...change },
  }, parts);
}

/** How many spans a body has: each has the name of the first span of a request. */
function spanCount(body: Uint8Array): number {
  return new TextDecoder("latin1").decode(body).split("InferRequest").length - 1;
}

function sizes({ posts }: TraceFixture): number[] {
  return posts.map(({ body }) => spanCount(body));
}

Deno.test("spans are posted after the delay, with the resource", async () => {
  const fixture = create({ resource: [["service.name", "mine"], ["a", "b"]] });
  fixture.request();
  await fixture.clock.advance(4999);
  assert.deepEqual(sizes(fixture), []);
  await fixture.clock.advance(1);
  assert.deepEqual(sizes(fixture), [1]);
  assert.equal(fixture.posts[0]!.url, "http://c/v1/traces");
  const text = new TextDecoder("latin1").decode(fixture.posts[0]!.body);
  assert.ok(text.includes("service.name") && text.includes("mine") && !text.includes("triton-inf"));
  assert.equal(fixture.clock.timerCount, 0);
});

Deno.test("a full batch leaves at once, no batch is larger", async () => {
  const fixture = create({ maxExportBatchSize: 2 });
  for (let count = 0; count < 5; count++) fixture.request();
  await fixture.clock.settle();
  assert.deepEqual(sizes(fixture), [2, 2]);
  await fixture.clock.advance(5000);
  assert.deepEqual(sizes(fixture), [2, 2, 1]);
});

Deno.test("one request to the collector at a time; spans that find the queue full are dropped", async () => {
  const finish: (() => void)[] = [];
  const fixture = create({ maxQueueSize: 2, maxExportBatchSize: 2 }, {
    post: () => new Promise<void>((resolve) => finish.push(resolve)),
  });
  for (let count = 0; count < 6; count++) fixture.request();
  assert.equal(finish.length, 1);
  assert.match(fixture.lines[0]!, /^trace spans are dropped \(1 so far\): more spans come/);
  assert.equal(fixture.lines.length, 1);
  finish[0]!();
  await fixture.clock.settle();
  assert.equal(finish.length, 2);
  finish[1]!();
  await fixture.tracer.close();
});

Deno.test("what the collector does not take is dropped and told of once a minute", async () => {
  const fixture = create({ scheduleDelayMs: 0 });
  fixture.postError = new Error("connection refused");
  for (let count = 0; count < 3; count++) {
    fixture.request();
    await fixture.clock.advance(10);
  }
  assert.deepEqual(fixture.lines, [
    "trace spans are dropped (1 so far): http://c/v1/traces: connection refused",
  ]);
  await fixture.clock.advance(60_000);
  fixture.request();
  await fixture.clock.advance(10);
  assert.match(fixture.lines[1]!, /\(4 so far\)/);
});

Deno.test("close() posts what waits, and gives up on a collector that is not there", async () => {
  const fixture = create({ maxExportBatchSize: 2 });
  for (let count = 0; count < 3; count++) fixture.request();
  await fixture.tracer.close();
  assert.deepEqual(sizes(fixture), [2, 1]);
  assert.equal(fixture.clock.timerCount, 0);
  const lost = create();
  lost.postError = new Error("no");
  lost.request();
  await lost.tracer.close();
  assert.equal(lost.clock.timerCount, 0);
});

Deno.test("level TENSORS is an error in the log, not a fault", () => {
  const fixture = create();
  fixture.tracer.update("", { levels: ["TIMESTAMPS", "TENSORS"] });
  assert.deepEqual(fixture.lines, [
    "trace level TENSORS is not supported in opentelemetry mode",
  ]);
});
