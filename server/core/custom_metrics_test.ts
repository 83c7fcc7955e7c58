import assert from "node:assert/strict";
import { CustomMetrics } from "./custom_metrics.ts";

function histogramOf(metrics: CustomMetrics) {
  return metrics.openFamily("histogram", "took_ms", "time").metric({}, [1, 2.5]);
}

Deno.test("CustomMetrics shares families by name and series by labels", () => {
  const metrics = new CustomMetrics();
  const first = metrics.openFamily("counter", "calls", "first description");
  const second = metrics.openFamily("counter", "calls", "another");
  first.metric({ a: "1", b: "2" }).increment(1.5);
  const same = second.metric({ b: "2", a: "1" });
  same.increment(2);
  second.metric({}).increment(0);
  assert.equal(same.value(), 3.5);
  assert.deepEqual(metrics.snapshot(), [{
    name: "calls",
    kind: "counter",
    description: "first description",
    series: [
      { labels: { a: "1", b: "2" }, value: { value: 3.5 } },
      { labels: {}, value: { value: 0 } },
    ],
  }]);
});

Deno.test("CustomMetrics drops a series with its last owner, and a family that nobody owns", () => {
  const metrics = new CustomMetrics();
  const first = metrics.openFamily("gauge", "level", "");
  const second = metrics.openFamily("gauge", "level", "");
  const one = first.metric({ x: "y" });
  const other = second.metric({ x: "y" });
  one.set(7);
  one[Symbol.dispose]();
  one[Symbol.dispose]();
  assert.equal(other.value(), 7);
  assert.throws(() => one.value(), {
    code: "INTERNAL",
    message: /'MetricFamily' has been deleted/,
  });
  other[Symbol.dispose]();
  assert.deepEqual(metrics.snapshot(), [], "a family without series is not shown");
  assert.equal(first.metric({ x: "y" }).value(), 0, "made anew");
  first[Symbol.dispose]();
  assert.throws(() => first.metric({}), /'MetricFamily' has been deleted/);
  assert.throws(() => metrics.openFamily("counter", "level", ""), /different type/);
  second[Symbol.dispose]();
  second[Symbol.dispose]();
  metrics.openFamily("counter", "level", "");
});

Deno.test("CustomMetrics takes the series with the owner of their family that made them", () => {
  const metrics = new CustomMetrics();
  const family = metrics.openFamily("gauge", "level", "");
  const metric = family.metric({});
  const kept = metrics.openFamily("gauge", "level", "").metric({ other: "owner" });
  family[Symbol.dispose]();
  assert.throws(() => metric.set(1), /should be deleted AFTER/);
  metric[Symbol.dispose]();
  kept.set(2);
  assert.deepEqual(metrics.snapshot()[0]!.series.map(({ labels }) => labels), [{
    other: "owner",
  }]);
});

Deno.test("CustomMetrics counts observations up to each bound of a histogram", () => {
  const metrics = new CustomMetrics();
  const histogram = histogramOf(metrics);
  for (const value of [1, 2, 2.5, 3, -1]) histogram.observe(value);
  // Who asks for the same series with other buckets gets those it has.
  metrics.openFamily("histogram", "took_ms", "").metric({}, [9]).observe(100);
  assert.deepEqual(metrics.snapshot()[0]!.series[0]!.value, {
    buckets: [{ upperBound: 1, count: 2 }, { upperBound: 2.5, count: 4 }],
    count: 6,
    sum: 107.5,
  });
});

Deno.test("CustomMetrics refuses what a kind cannot do", () => {
  const metrics = new CustomMetrics();
  const counter = metrics.openFamily("counter", "c", "").metric({});
  const gauge = metrics.openFamily("gauge", "g", "").metric({});
  const histogram = histogramOf(metrics);
  assert.throws(() => counter.increment(-1), {
    code: "INVALID_ARG",
    message:
      "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.",
  });
  assert.throws(() => counter.increment(NaN), { code: "INVALID_ARG" });
  assert.throws(() => histogram.observe(NaN), { code: "INVALID_ARG" });
  const unsupported: [() => void, string][] = [
    [() => counter.set(1), "COUNTER does not support Set"],
    [() => counter.observe(1), "COUNTER does not support Observe"],
    [() => gauge.observe(1), "GAUGE does not support Observe"],
    [() => histogram.increment(1), "HISTOGRAM does not support Increment"],
    [() => histogram.set(1), "HISTOGRAM does not support Set"],
    [() => histogram.value(), "HISTOGRAM does not support Value"],
  ];
  for (const [use, text] of unsupported) {
    assert.throws(use, { code: "UNSUPPORTED", message: `TRITONSERVER_METRIC_KIND_${text}` });
  }
  gauge.increment(-3);
  assert.equal(gauge.value(), -3);
});

Deno.test("CustomMetrics refuses names, labels and buckets that cannot be printed", () => {
  const metrics = new CustomMetrics();
  const family = metrics.openFamily("counter", "c:1", "");
  const histograms = metrics.openFamily("histogram", "h", "");
  metrics.openFamily("counter", "g_sum", "");
  const faults: [() => void, RegExp][] = [
    ...["", "1a", "a b", "é", "__x", "a\n", "x".repeat(257)].map((name): [() => void, RegExp] => [
      () => metrics.openFamily("gauge", name, ""),
      /^Invalid metric name "/,
    ]),
    [() => metrics.openFamily("gauge", "nv_inference_count", ""), /server's own metrics/],
    [() => metrics.openFamily("gauge", "nereid_x", ""), /server's own metrics/],
    [() => metrics.openFamily("gauge", "x", "y".repeat(5000)), /5000 characters/],
    [() => metrics.openFamily("gauge", "h_bucket", ""), /mix with those of 'h'/],
    [() => metrics.openFamily("histogram", "g", ""), /mix with those of 'g_sum'/],
    [() => family.metric({ "a-b": "" }), /Invalid label name "a-b" of metric 'c:1'/],
    [() => family.metric({ __a: "" }), /Invalid label name/],
    [() => histograms.metric({ le: "" }, []), /Invalid label name "le"/],
    [() => family.metric({ a: "x".repeat(2000) }), /2000 characters/],
    [
      () => family.metric(Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`l${n}`, ""]))),
      /65 labels/,
    ],
    [() => family.metric({}, [1]), /Unexpected buckets found\.$/],
    [() => histograms.metric({}), /Missing required buckets\.$/],
    [() => histograms.metric({}, [2, 1]), /got 1 after 2/],
    [() => histograms.metric({}, [1, 1]), /got 1 after 1/],
    [() => histograms.metric({}, [NaN]), /got NaN after nothing/],
    [() => histograms.metric({}, Array.from({ length: 201 }, (_, n) => n)), /201 buckets/],
  ];
  for (const [make, message] of faults) assert.throws(make, { code: "INVALID_ARG", message });
  assert.deepEqual(metrics.snapshot(), []);
});

Deno.test("CustomMetrics bounds the number of families and series", () => {
  const metrics = new CustomMetrics();
  const family = metrics.openFamily("gauge", "g", "");
  const made = Array.from({ length: 50_000 }, (_, n) => family.metric({ n: String(n) }));
  assert.throws(() => family.metric({}), { code: "UNAVAILABLE", message: /50000 metrics already/ });
  family.metric({ n: "7" });
  made[8]![Symbol.dispose]();
  family.metric({});
  for (let n = 1; n < 1000; n++) metrics.openFamily("gauge", `g${n}`, "");
  assert.throws(() => metrics.openFamily("gauge", "one_more", ""), { code: "UNAVAILABLE" });
  metrics.openFamily("gauge", "g5", "");
});
