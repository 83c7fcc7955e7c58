import assert from "node:assert/strict";
import { TraceFixture } from "./trace_fixture.ts";

const ON = { levels: ["TIMESTAMPS"], rate: 1, count: -1, logFrequency: 0 } as const;

Deno.test("traces of a setting without limits go to the main file, which ends with the server", async () => {
  const fixture = new TraceFixture({ values: ON });
  fixture.request();
  fixture.request();
  assert.equal(fixture.files.size, 0);
  await fixture.clock.advance(50);
  fixture.request();
  await fixture.clock.advance(50);
  assert.match(fixture.files.get("t.json")!, /^\[\{.*\}$/);
  await fixture.tracer.close();
  assert.deepEqual(fixture.ids("t.json"), [1, 2, 3]);
  assert.equal(fixture.clock.timerCount, 0);
});

Deno.test("no trace, no file", async () => {
  const fixture = new TraceFixture({ values: ON });
  await fixture.tracer.close();
  assert.equal(fixture.files.size, 0);
});

Deno.test("log_frequency makes numbered files, the rest goes to the next one", async () => {
  const fixture = new TraceFixture({ values: { ...ON, logFrequency: 2 } });
  for (let count = 0; count < 5; count++) fixture.request();
  await fixture.clock.settle();
  assert.deepEqual([fixture.ids("t.json.0"), fixture.ids("t.json.1")], [[1, 2], [3, 4]]);
  fixture.tracer.update("", { logFrequency: 3 });
  await fixture.clock.settle();
  assert.deepEqual(fixture.ids("t.json.2"), [5]);
  fixture.request();
  await fixture.tracer.close();
  assert.deepEqual(fixture.ids("t.json.3"), [6]);
  assert.equal(fixture.files.has("t.json"), false);
});

Deno.test("traces that were counted down are a numbered file of their own", async () => {
  const fixture = new TraceFixture({ values: ON });
  fixture.request();
  fixture.tracer.update("", { count: 2 });
  for (let count = 0; count < 4; count++) fixture.request();
  await fixture.clock.settle();
  assert.deepEqual(fixture.ids("t.json.0"), [2, 3]);
  fixture.tracer.update("", { count: 9 });
  fixture.request();
  await fixture.tracer.close();
  assert.deepEqual(fixture.ids("t.json"), [1, 4]);
});

Deno.test("a trace that runs keeps the setting it began with", async () => {
  const fixture = new TraceFixture({ values: { ...ON, logFrequency: 2 } });
  const running = fixture.tracer.start("m", { get: () => undefined })!;
  fixture.tracer.update("", { logFrequency: null, levels: ["OFF"] });
  running.mark("HTTP_RECV_START");
  running.end();
  await fixture.clock.settle();
  assert.deepEqual(fixture.ids("t.json.0"), [1]);
});

Deno.test("a file that cannot be written is told of once, and costs only the traces", async () => {
  const fixture = new TraceFixture({ values: { ...ON, logFrequency: 1 } });
  fixture.writeError = new Error("disk full");
  fixture.request();
  fixture.request();
  await fixture.clock.settle();
  assert.deepEqual(fixture.lines, ["traces are lost: failed to write t.json.0: disk full"]);
  fixture.writeError = undefined;
  fixture.request();
  await fixture.tracer.close();
  assert.deepEqual(fixture.ids("t.json.2"), [3]);
});

Deno.test("traces are dropped when they come faster than they are written", async () => {
  let finish = () => {};
  const fixture = new TraceFixture({ values: { ...ON, logFrequency: 1 } }, {
    write: () => new Promise<void>((resolve) => finish = resolve),
  });
  const name = "x".repeat(1024 * 1024);
  for (let count = 0; count < 70; count++) {
    const trace = fixture.tracer.start("m", { get: () => undefined })!;
    trace.mark(name);
    trace.end();
  }
  assert.equal(fixture.lines.length, 1);
  assert.match(fixture.lines[0]!, /^traces are dropped: t\.json cannot be written as fast/);
  const closing = fixture.tracer.close();
  for (let count = 0; count < 70; count++) {
    finish();
    await fixture.clock.settle();
  }
  await closing;
  assert.match(fixture.lines.at(-1)!, /^\d+ traces were dropped$/);
});

Deno.test("the end does not wait for ever for a file that takes nothing", async () => {
  const fixture = new TraceFixture({ values: { ...ON, logFrequency: 1 } }, {
    write: () => new Promise<void>(() => {}),
  });
  fixture.request();
  let isClosed = false;
  const closing = fixture.tracer.close().then(() => isClosed = true);
  await fixture.clock.advance(4999);
  assert.equal(isClosed, false);
  await fixture.clock.advance(1);
  assert.equal(isClosed, true);
  await closing;
  assert.deepEqual(fixture.lines, ["traces are lost: t.json took nothing for 5 s"]);
});
