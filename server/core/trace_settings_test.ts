import assert from "node:assert/strict";
import { DEFAULT_TRACE_OPTIONS, parseTraceNumber } from "./options_trace.ts";
import { TraceFixture } from "./trace_fixture.ts";
import type { Tracer } from "./tracer.ts";

const ON = { levels: ["TIMESTAMPS"], rate: 1, count: -1, logFrequency: 0 } as const;

function shown(fixture: TraceFixture, model = ""): Record<string, string> {
  const setting = fixture.tracer.update(model, {});
  return Object.fromEntries(setting.map(([name, values]) => [name, values.join("+")]));
}

Deno.test("Tracer.update() shows the settings of the command line first", () => {
  assert.deepEqual(shown(new TraceFixture()), {
    "trace_level": "OFF",
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "t.json",
    "trace_mode": "triton",
  });
});

Deno.test("a model follows the global setting in what it does not set itself", () => {
  const fixture = new TraceFixture({ values: ON });
  fixture.tracer.update("m", { rate: 12, logFrequency: 34 });
  fixture.tracer.update("", { rate: 56, count: 78, levels: ["OFF"] });
  const { trace_level: level, trace_rate: rate, trace_count: count } = shown(fixture, "m");
  assert.deepEqual([level, rate, count], ["OFF", "12", "78"]);
  fixture.tracer.update("", { rate: null, count: null });
  assert.equal(shown(fixture).trace_rate, "1");
  assert.equal(shown(fixture, "m").trace_count, "-1");
  fixture.tracer.update("m", { rate: null });
  assert.equal(shown(fixture, "m").trace_rate, "1");
  assert.equal(shown(fixture, "m").log_frequency, "34");
});

Deno.test("a model without settings of its own shares the counters of the global setting", () => {
  const fixture = new TraceFixture({ values: { ...ON, count: 5 } });
  fixture.request("m");
  fixture.tracer.update("n", { count: 2 });
  fixture.request("n");
  assert.deepEqual([shown(fixture).trace_count, shown(fixture, "n").trace_count], ["4", "1"]);
  fixture.tracer.update("n", { count: null });
  fixture.request("n");
  assert.deepEqual([shown(fixture).trace_count, shown(fixture, "n").trace_count], ["3", "3"]);
});

Deno.test("an update begins to count anew, a change of nothing does not", () => {
  const fixture = new TraceFixture({ values: { ...ON, rate: 2, count: 3 } });
  assert.deepEqual([fixture.request(), fixture.request(), fixture.request()], [false, true, false]);
  fixture.tracer.update("", {});
  assert.deepEqual([fixture.request(), fixture.request()], [true, false]);
  fixture.tracer.update("", { logFrequency: 0 });
  assert.deepEqual([fixture.request(), fixture.request()], [false, true]);
  assert.equal(shown(fixture).trace_count, "2");
});

Deno.test("a count of 0, a level of OFF and a rate not reached trace nothing", () => {
  for (const values of [{ ...ON, count: 0 }, { ...ON, levels: [] }, { ...ON, rate: 3 }]) {
    const fixture = new TraceFixture({ values });
    assert.equal(fixture.request(), false);
  }
  assert.equal(new TraceFixture().tracer.isActive, false);
  const fixture = new TraceFixture();
  fixture.tracer.update("m", { levels: ["TENSORS"] });
  assert.equal(fixture.tracer.isActive, true);
});

Deno.test("settings that cannot be traced by are refused, and change nothing", () => {
  const fixture = new TraceFixture({ values: ON });
  const reject = (change: Parameters<Tracer["update"]>[1], text: string) =>
    assert.throws(() => fixture.tracer.update("", change), { message: text });
  const start = "Attempting to set invalid trace setting :";
  reject({ rate: 0 }, `${start}sample rate must be non-zero`);
  reject({ levels: ["OFF", "TENSORS"] }, "Expect only one trace level 'OFF' is specified");
  assert.equal(shown(fixture).trace_rate, "1");
  const nowhere = new TraceFixture({ file: "" });
  assert.throws(() => nowhere.tracer.update("m", { levels: ["TIMESTAMPS"] }), {
    message: `${start}trace file name is not given`,
  });
  nowhere.tracer.update("", { rate: 0 });
  assert.throws(() => new TraceFixture({ file: "", values: ON }), /trace file name/);
});

Deno.test("a global change that a model's own values do not fit is refused as a whole", () => {
  const fixture = new TraceFixture();
  fixture.tracer.update("m", { levels: ["TIMESTAMPS"] });
  assert.throws(() => fixture.tracer.update("", { rate: 0 }), /sample rate/);
  assert.equal(shown(fixture).trace_rate, "1000");
});

Deno.test("unknown level names are ignored", () => {
  const fixture = new TraceFixture({ values: ON });
  fixture.tracer.update("", { levels: ["LOUD"] });
  assert.equal(shown(fixture).trace_level, "OFF");
  fixture.tracer.update("", { levels: ["TENSORS", "LOUD", "TIMESTAMPS"] });
  assert.equal(shown(fixture).trace_level, "TIMESTAMPS+TENSORS");
});

Deno.test("in opentelemetry mode a rate of 0 leaves requests that bring a context", () => {
  const values = { ...ON, rate: 0 };
  const fixture = new TraceFixture({ mode: "opentelemetry", file: "", values });
  assert.equal(fixture.request(), false);
  const traceparent = "00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01";
  assert.equal(fixture.request("m", { traceparent }), true);
  assert.equal(fixture.request("m", { traceparent: "00-zz" }), false);
  fixture.tracer.update("", { levels: ["OFF"] });
  assert.equal(fixture.request("m", { traceparent }), false);
  const { openTelemetry } = DEFAULT_TRACE_OPTIONS;
  const entries = [["url", "a"], ["resource", "b=1"], ["resource", "c=2"]] as const;
  const other = new TraceFixture({
    mode: "opentelemetry",
    openTelemetry: { ...openTelemetry, shown: entries },
  });
  assert.deepEqual(other.tracer.update("", {}).slice(3), [
    ["trace_mode", ["opentelemetry"]],
    ["url", ["a"]],
    ["resource", ["b=1", "c=2"]],
  ]);
});

Deno.test("parseTraceNumber() names the setting, the value and the range", () => {
  const fault = (name: "trace_rate" | "trace_count", text: string, gap?: string) => {
    try {
      return String(parseTraceNumber(name, text, gap));
    } catch (reason) {
      return (reason as Error).message;
    }
  };
  assert.equal(fault("trace_rate", "+7"), "7");
  assert.equal(fault("trace_rate", "1e3"), "Unable to parse 'trace_rate', got: 1e3");
  assert.equal(
    fault("trace_rate", "10000000000"),
    "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 10000000000",
  );
  assert.equal(
    fault("trace_count", "-2", ""),
    "Unable to parse 'trace_count'. Expecting value >= -1, got:-2",
  );
  assert.equal(fault("trace_count", "-1"), "-1");
});
