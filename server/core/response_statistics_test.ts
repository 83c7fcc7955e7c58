import assert from "node:assert/strict";
import { FakeClock } from "./fake_clock.ts";
import { MAX_COUNTED_RESPONSES, ResponseStatistics } from "./response_statistics.ts";
import { Job } from "./scheduler/job.ts";
import { VersionStatistics } from "./statistics.ts";

Deno.test("ResponseStatistics counts only so many responses of a request", () => {
  const statistics = new ResponseStatistics();
  for (const index of [0, MAX_COUNTED_RESPONSES - 1, MAX_COUNTED_RESPONSES, 1e9]) {
    statistics.count(index, undefined, { startMs: 0, endMs: 1, isCancelled: false });
  }
  const messages = statistics.toMessages();
  assert.equal(Object.keys(messages).length, MAX_COUNTED_RESPONSES);
  assert.equal(messages["0"]!.emptyResponse!.count, 1n);
  assert.equal(messages["1"]!.emptyResponse!.count, 0n);
});

Deno.test("VersionStatistics observes the first response of a decoupled model when it is sent", async () => {
  const clock = new FakeClock();
  const statistics = new VersionStatistics({
    model: "m",
    version: 1,
    tags: {},
    clock,
    statistics: { firstResponseBuckets: [10, 100] },
    decoupled: true,
  });
  const job = new Job({
    id: "",
    correlationId: 0n,
    batchSize: 1,
    inputs: [],
    outputs: [],
    parameters: {},
    signal: undefined,
    priority: 0,
    timeoutUs: 0,
    startMs: clock.now(),
    onDone: () => {},
    onResponse: () => undefined,
  });
  job.observer = statistics;
  statistics.accepted(job);
  statistics.started([job]);
  await clock.advance(7);
  const observed = () => statistics.snapshot().firstResponse!.buckets.map(({ count }) => count);
  assert.deepEqual(observed(), [0, 0]);
  job.send({ outputs: [] }, false);
  assert.deepEqual(observed(), [1, 1]);
  await clock.advance(500);
  job.outcome = { streamed: true };
  statistics.executed([job], { startMs: 0, inputEndMs: 0, outputStartMs: 0, endMs: 507 });
  job.settle(job.outcome, () => {});
  job.send(undefined, true);
  assert.deepEqual(observed(), [1, 1]);
  assert.equal(statistics.snapshot().firstResponse!.count, 1);
  assert.equal(statistics.snapshot().success, 1);
});
