import assert from "node:assert/strict";
import { LatencyHistogram, LatencySummary } from "./latency.ts";

Deno.test("LatencyHistogram counts cumulatively", () => {
  const histogram = new LatencyHistogram([500, 100]);
  for (const value of [1, 100, 101, 9999]) histogram.observe(value);
  assert.deepEqual(histogram.snapshot(), {
    buckets: [{ upperBound: 100, count: 2 }, { upperBound: 500, count: 3 }],
    sum: 10201,
    count: 4,
  });
});

Deno.test("LatencySummary gives quantiles of the last minute, sums of all time", () => {
  const summary = new LatencySummary([0.5, 0.9, 1]);
  for (let value = 1; value <= 100; value++) summary.observe(value, 0);
  assert.deepEqual(summary.snapshot(1000).quantiles.map(({ value }) => value), [50, 90, 100]);
  for (let index = 0; index < 100; index++) summary.observe(7, 50_000);
  assert.deepEqual(summary.snapshot(61_000).quantiles.map(({ value }) => value), [7, 7, 7]);
  const { quantiles, count, sum } = summary.snapshot(200_000);
  assert.ok(quantiles.every(({ value }) => Number.isNaN(value)));
  assert.deepEqual([count, sum], [200, 5050 + 700]);
});

Deno.test("LatencySummary stays bounded and close under load", () => {
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const summary = new LatencySummary([0.5, 0.99], random);
  for (let index = 0; index < 200_000; index++) summary.observe(random() * 1000, index / 100);
  const [median, high] = summary.snapshot(2000).quantiles.map(({ value }) => value);
  assert.ok(Math.abs(median! - 500) < 40, String(median));
  assert.ok(Math.abs(high! - 990) < 15, String(high));
});
