import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { SchedulerFixture } from "./scheduler/scheduler_fixture.ts";

function identityHolds({ statistics }: SchedulerFixture): void {
  const { received, success, failures, inflight } = statistics.snapshot();
  const failed = Object.values(failures).reduce((sum, count) => sum + count, 0);
  assert.equal(received, success + failed + inflight);
}

Deno.test("VersionStatistics shows zeros before the first request", () => {
  const message = new SchedulerFixture({}).statistics.toMessage();
  assert.equal(message.name, "m");
  assert.equal(message.version, "1");
  assert.equal(message.lastInference, 0n);
  assert.deepEqual(message.batchStats, []);
  assert.deepEqual(message.responseStats, {});
  assert.equal(message.inferenceStats?.success?.count, 0n);
  assert.equal(message.inferenceStats?.cacheHit?.ns, 0n);
});

Deno.test("VersionStatistics counts rows, executions and durations", async () => {
  const fixture = new SchedulerFixture({
    batching: { preferredBatchSize: [8] },
    executeMs: 10,
  });
  fixture.send({ rows: 3 });
  await fixture.clock.advance(4);
  fixture.sendAll([2, 1]);
  identityHolds(fixture);
  await fixture.clock.advance(100);
  identityHolds(fixture);
  const { inferenceStats, ...message } = fixture.statistics.toMessage();
  assert.equal(message.inferenceCount, 6n);
  assert.equal(message.executionCount, 2n);
  assert.equal(message.lastInference, BigInt(fixture.clock.wallNow() - 84));
  assert.equal(inferenceStats?.success?.count, 3n);
  assert.equal(inferenceStats?.success?.ns, 10_000_000n + 2n * 16_000_000n);
  assert.equal(inferenceStats?.queue?.count, 3n);
  assert.equal(inferenceStats?.queue?.ns, 2n * 6_000_000n);
  assert.equal(inferenceStats?.computeInput?.ns, 30_000_000n);
  assert.deepEqual(
    message.batchStats.map(({ batchSize, computeInput }) => [
      batchSize,
      computeInput?.count,
      computeInput?.ns,
    ]),
    [[3n, 2n, 20_000_000n]],
  );
  assert.equal(fixture.statistics.snapshot().durationsUs.request, 42_000);
});

Deno.test("VersionStatistics counts a failing execution as execution, not as inference", async () => {
  const fixture = new SchedulerFixture({
    executeMs: 5,
    outcome: () => ({ error: new ServerError("INTERNAL", "No") }),
  });
  fixture.send({ rows: 2 });
  await fixture.clock.advance(100);
  const message = fixture.statistics.toMessage();
  assert.equal(message.inferenceCount, 0n);
  assert.equal(message.executionCount, 1n);
  assert.equal(message.inferenceStats?.fail?.count, 1n);
  assert.equal(message.inferenceStats?.fail?.ns, 5_000_000n);
  assert.equal(message.inferenceStats?.success?.count, 0n);
  identityHolds(fixture);
});

Deno.test("VersionStatistics shows who waits and who runs", async () => {
  const fixture = new SchedulerFixture({ executeMs: 10 });
  fixture.sendAll([1, 1, 1]);
  await fixture.clock.advance(1);
  const { pending, inflight, received } = fixture.statistics.snapshot();
  assert.deepEqual([pending, inflight, received], [2, 3, 3]);
  await fixture.clock.advance(100);
  assert.equal(fixture.statistics.snapshot().pending, 0);
});
