import assert from "node:assert/strict";
import { CustomMetrics } from "../core/custom_metrics.ts";
import { formatMetrics } from "./exposition.ts";

function linesOf(metrics: CustomMetrics): string[] {
  const text = formatMetrics({ versions: [], custom: metrics.snapshot() });
  return text.slice(text.indexOf("# HELP my_")).trimEnd().split("\n");
}

Deno.test("formatMetrics() shows the metrics of models last, with what they wrote escaped", () => {
  const metrics = new CustomMetrics();
  const calls = metrics.openFamily("counter", "my_calls", "line 1\nline \\2");
  calls.metric({}).increment(1.5);
  calls.metric({ b: "1", a: 'x"y\\z\nw' });
  metrics.openFamily("gauge", "my_unused", "");
  const levels = metrics.openFamily("gauge", "my_levels", "");
  const values = { "1e30": -1e30, third: 1 / 3, big: 123456789, inf: Infinity, nan: NaN };
  for (const [x, value] of Object.entries(values)) levels.metric({ x }).set(value);
  assert.deepEqual(linesOf(metrics), [
    "# HELP my_calls line 1\\nline \\\\2",
    "# TYPE my_calls counter",
    "my_calls 1.5",
    'my_calls{a="x\\"y\\\\z\\nw",b="1"} 0',
    "# HELP my_levels ",
    "# TYPE my_levels gauge",
    'my_levels{x="1e30"} -1e+30',
    'my_levels{x="third"} 0.3333333333333333',
    'my_levels{x="big"} 123456789',
    'my_levels{x="inf"} +Inf',
    'my_levels{x="nan"} NaN',
  ]);
});

Deno.test("formatMetrics() shows histograms of models", () => {
  const metrics = new CustomMetrics();
  const family = metrics.openFamily("histogram", "my_times", "time");
  const times = family.metric({ l: "1" }, [0.1, 1, 2.5, 10, Infinity]);
  for (const value of [0.1, 3, 100]) times.observe(value);
  family.metric({ l: "none" }, []).observe(7);
  assert.deepEqual(linesOf(metrics).slice(2), [
    'my_times_count{l="1"} 3',
    'my_times_sum{l="1"} 103.1',
    'my_times_bucket{l="1",le="0.1"} 1',
    'my_times_bucket{l="1",le="1"} 1',
    'my_times_bucket{l="1",le="2.5"} 1',
    'my_times_bucket{l="1",le="10"} 2',
    'my_times_bucket{l="1",le="+Inf"} 3',
    'my_times_count{l="none"} 1',
    'my_times_sum{l="none"} 7',
    'my_times_bucket{l="none",le="+Inf"} 1',
  ]);
});
