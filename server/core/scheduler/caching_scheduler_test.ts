import assert from "node:assert/strict";
import type { ExecuteOutcome, ExecuteRequest } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import { FakeClock } from "../fake_clock.ts";
import { ResponseCache } from "../response_cache.ts";
import { CachingScheduler } from "./caching_scheduler.ts";
import {
  SchedulerFixture,
  type SchedulerFixtureOptions,
  type Sent,
  tensor,
} from "./scheduler_fixture.ts";
import { testScheduler } from "./scheduler_suite.ts";

function openCache(byteSize = 1 << 20): ResponseCache {
  return new ResponseCache({ byteSize, clock: new FakeClock() });
}

function create(options: SchedulerFixtureOptions = {}): SchedulerFixture {
  return new SchedulerFixture({ cache: openCache(), executeMs: 10, ...options });
}

function input(value: number) {
  return [tensor("X", [1, 1], Uint8Array.of(value, 0, 0, 0))];
}

function bytesOf({ outcome }: Sent): number[] | undefined {
  return outcome !== undefined && "outputs" in outcome ? [...outcome.outputs[0]!.data] : undefined;
}

/** The suite sends equal requests and expects each to run. */
class DistinctRequests extends SchedulerFixture {
  #count = 0;

  override send(options: Parameters<SchedulerFixture["send"]>[0] = {}): Sent {
    return super.send({ inputs: [tensor("X", [this.#count++])], ...options });
  }
}

for (const [name, batching] of [["default", undefined], ["dynamic", {}]] as const) {
  testScheduler(
    `CachingScheduler over the ${name} scheduler`,
    (options = {}) =>
      new DistinctRequests({
        cache: openCache(),
        ...(batching === undefined ? {} : { batching }),
        ...options,
      }),
  );

  Deno.test(`CachingScheduler over the ${name} scheduler runs equal requests once`, async () => {
    const fixture = create(batching === undefined ? {} : { batching });
    fixture.send({ inputs: input(1) });
    await fixture.clock.advance(10);
    const second = fixture.send({ inputs: input(1), id: "second" });
    assert.equal(second.answeredMs, 10);
    assert.deepEqual(bytesOf(second), [1, 0, 0, 0]);
    assert.equal(second.answerCount, 1);
    const third = fixture.send({ inputs: input(2) });
    await fixture.clock.advance(10);
    assert.deepEqual(bytesOf(third), [2, 0, 0, 0]);
    assert.equal(fixture.executions.length, 2);
    assert.equal(fixture.scheduler.inflightCount, 0);
  });
}

Deno.test("CachingScheduler counts hits as success without execution", async () => {
  const fixture = create();
  for (const value of [1, 1, 2, 1]) {
    fixture.send({ inputs: input(value) });
    await fixture.clock.advance(10);
  }
  const { statistics, clock } = fixture;
  const message = statistics.toMessage();
  const stats = message.inferenceStats!;
  assert.deepEqual([stats.cacheHit?.count, stats.cacheMiss?.count], [2n, 2n]);
  assert.deepEqual([message.inferenceCount, message.executionCount], [2n, 2n]);
  assert.deepEqual([stats.success?.count, stats.queue?.count], [4n, 4n]);
  const { computeInput, computeInfer, computeOutput } = stats;
  const counts = [computeInput, computeInfer, computeOutput].map((stat) => stat?.count);
  assert.deepEqual(counts, [2n, 2n, 2n]);
  assert.equal(stats.success?.ns, 20_000_000n);
  assert.equal(message.lastInference, BigInt(clock.wallNow() - 10));
  assert.equal(message.batchStats.length, 1);
  const { received, success, pending, inflight, cache } = statistics.snapshot();
  assert.deepEqual([received, success, pending, inflight], [4, 4, 0, 0]);
  assert.deepEqual(cache, { hit: { count: 2, us: 0 }, miss: { count: 2, us: 0 } });
});

Deno.test("CachingScheduler keeps copies: the buffers of a response may be reused", async () => {
  const data = Uint8Array.of(5, 6, 7, 8);
  let releaseCount = 0;
  const fixture = create({
    outcome: () => ({ outputs: [tensor("Y", [1, 1], data)], release: () => releaseCount++ }),
  });
  const first = fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  assert.ok(first.outcome !== undefined && "release" in first.outcome);
  first.outcome.release!();
  data.fill(0);
  const hits = [1, 1].map((value) => fixture.send({ inputs: input(value) }));
  assert.deepEqual(hits.map(bytesOf), [[5, 6, 7, 8], [5, 6, 7, 8]]);
  assert.equal(releaseCount, 1);
  const [a, b] = hits.map(({ outcome }) => "outputs" in outcome! ? outcome.outputs : undefined);
  assert.equal(a, b, "handed out without another copy");
});

Deno.test("CachingScheduler runs equal requests that come together, keeps one answer and counts one miss", async () => {
  const fixture = create({ maxBatchSize: 1 });
  const sent = [3, 3, 3].map((value) => fixture.send({ inputs: input(value) }));
  await fixture.clock.advance(100);
  assert.deepEqual(sent.map(bytesOf), Array.from({ length: 3 }, () => [3, 0, 0, 0]));
  assert.equal(fixture.executions.length, 3);
  const { hit, miss } = fixture.statistics.snapshot().cache!;
  assert.deepEqual([hit.count, miss.count], [0, 1]);
  fixture.send({ inputs: input(3) });
  assert.equal(fixture.statistics.snapshot().cache!.hit.count, 1);
});

Deno.test("CachingScheduler never keeps errors", async () => {
  let count = 0;
  const fixture = create({
    outcome: ({ inputs }: ExecuteRequest): ExecuteOutcome =>
      count++ === 0 ? { error: new ServerError("INTERNAL", "bad luck") } : { outputs: inputs },
  });
  const first = fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  assert.equal(first.error?.message, "bad luck");
  const second = fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  assert.deepEqual(bytesOf(second), [1, 0, 0, 0]);
  assert.equal(fixture.statistics.snapshot().cache!.miss.count, 1);
});

Deno.test("CachingScheduler never keeps the answer of a cancelled request", async () => {
  const fixture = create();
  const controller = new AbortController();
  fixture.send({ inputs: input(1), signal: controller.signal });
  await fixture.clock.advance(5);
  controller.abort();
  await fixture.clock.advance(5);
  fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  assert.equal(fixture.executions.length, 2);
  assert.equal(fixture.send({ inputs: input(1) }).answeredMs, 20);
});

Deno.test("CachingScheduler gives nothing to a client that has gone", async () => {
  const fixture = create();
  fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  const gone = fixture.send({ inputs: input(1), signal: AbortSignal.abort() });
  assert.equal(gone.error?.code, "CANCELLED");
  const { failures, inflight } = fixture.statistics.snapshot();
  assert.deepEqual([failures.CANCELED, inflight], [1, 0]);
});

Deno.test("CachingScheduler keeps no streamed responses", async () => {
  const responses: unknown[] = [];
  const fixture = create({
    outcome: (request) => {
      void request.send({ outputs: [tensor("Y", [1, 1], Uint8Array.of(1))] }, true);
      return { streamed: true };
    },
  });
  const onResponse = (response: unknown) => void responses.push(response);
  for (let turn = 0; turn < 2; turn++) {
    const sent = fixture.send({ inputs: input(1), onResponse });
    await fixture.clock.advance(10);
    assert.deepEqual([sent.answerCount, sent.outcome], [1, undefined]);
  }
  assert.equal(responses.length, 2);
  assert.equal(fixture.executions.length, 2);
});

Deno.test("CachingScheduler answers requests whose response is too large, and warns once", async () => {
  const fixture = create({ cache: openCache(100) });
  for (let turn = 0; turn < 3; turn++) {
    const sent = fixture.send({ inputs: input(1) });
    await fixture.clock.advance(10);
    assert.deepEqual(bytesOf(sent), [1, 0, 0, 0]);
  }
  assert.equal(fixture.executions.length, 3);
  assert.equal(fixture.statistics.snapshot().cache!.miss.count, 3);
  assert.equal(fixture.warnings.length, 1);
  assert.match(
    fixture.warnings[0]!,
    /Requested byte_size: \d+ is greater than total cache size: 100$/,
  );
});

Deno.test("CachingScheduler.stop() drops what was kept, refuses requests and keeps no late answers", async () => {
  const cache = openCache();
  const fixture = create({ cache });
  fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  assert.equal(cache.snapshot().entryCount, 1);
  const late = fixture.send({ inputs: input(2) });
  const stopping = fixture.scheduler.stop();
  assert.equal(cache.byteSize, 0);
  assert.equal(fixture.send({ inputs: input(1) }).error?.code, "UNAVAILABLE");
  await fixture.clock.advance(10);
  await stopping;
  assert.deepEqual(bytesOf(late), [2, 0, 0, 0]);
  assert.equal(cache.byteSize, 0);
});

Deno.test("CachingScheduler.stop() tells the scheduler how to stop", async () => {
  const asked: unknown[] = [];
  const { statistics, clock } = create();
  const scheduler = new CachingScheduler({
    scheduler: {
      enqueue: () => {},
      inflightCount: 0,
      stop: (options) => Promise.resolve(void asked.push(options)),
    },
    partition: openCache().createPartition(),
    observer: statistics,
    clock,
    log: { info: () => {}, warning: () => {}, error: () => {}, verbose: () => {} },
  });
  await scheduler.stop({ finishesSequences: true });
  assert.deepEqual(asked, [{ finishesSequences: true }]);
});

Deno.test("CachingScheduler finds nothing of another load of the same model", async () => {
  const cache = openCache();
  const [before, after] = [create({ cache }), create({ cache })];
  before.send({ inputs: input(1) });
  await before.clock.advance(10);
  after.send({ inputs: input(1) });
  await after.clock.advance(10);
  assert.equal(after.executions.length, 1);
  await before.scheduler.stop();
  assert.equal(after.send({ inputs: input(1) }).answeredMs, 10);
});

Deno.test("CachingScheduler answers from the cache while the queue is full", async () => {
  const fixture = create({
    maxBatchSize: 1,
    batching: { defaultQueuePolicy: { maxQueueSize: 1 } },
  });
  fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  fixture.send({ inputs: input(2) });
  await fixture.clock.settle();
  fixture.send({ inputs: input(3) });
  assert.equal(fixture.send({ inputs: input(4) }).error?.code, "UNAVAILABLE");
  assert.deepEqual(bytesOf(fixture.send({ inputs: input(1) })), [1, 0, 0, 0]);
  await fixture.clock.advance(100);
  assert.equal(fixture.statistics.snapshot().inflight, 0);
});

Deno.test("CachingScheduler runs every request of a sequence", async () => {
  const fixture = create();
  for (const flags of [{ sequence: 7n }, { sequence: "s" }, { start: true }, { end: true }]) {
    for (let turn = 0; turn < 2; turn++) {
      fixture.send({ inputs: input(1), ...flags });
      await fixture.clock.advance(10);
    }
  }
  assert.equal(fixture.executions.length, 8);
  assert.deepEqual(fixture.statistics.snapshot().cache!.miss.count, 0);
});

Deno.test("CachingScheduler keeps answers in the order of the requests where the batcher does", async () => {
  const fixture = create({ maxBatchSize: 2, batching: { preserveOrdering: true } });
  const send = (value: number, signal?: AbortSignal) =>
    fixture.send({
      inputs: input(value),
      id: `${value}:${fixture.clock.now()}`,
      ...(signal === undefined ? {} : { signal }),
    });
  send(1);
  await fixture.clock.advance(10);
  const alone = send(1);
  assert.equal(alone.answeredMs, 10, "nothing runs: at once");
  const gone = new AbortController();
  const expected = [send(2), send(1), send(3), send(1, gone.signal), send(4), send(1)];
  assert.equal(fixture.scheduler.inflightCount, 6);
  assert.equal(fixture.statistics.snapshot().pending, 6);
  await fixture.clock.advance(5);
  gone.abort();
  const stopping = fixture.scheduler.stop();
  await fixture.clock.advance(100);
  await stopping;
  assert.deepEqual(fixture.answered.slice(2), expected);
  assert.deepEqual(expected.map(({ answeredMs }) => answeredMs), [20, 20, 20, 20, 30, 30]);
  assert.deepEqual(expected.map(({ error }) => error?.code), [
    undefined,
    undefined,
    undefined,
    "CANCELLED",
    undefined,
    undefined,
  ]);
  const { pending, inflight, failures, cache } = fixture.statistics.snapshot();
  assert.deepEqual([pending, inflight, failures.CANCELED, cache!.hit.count], [0, 0, 1, 3]);
  assert.equal(fixture.scheduler.inflightCount, 0);
});

Deno.test("CachingScheduler waits for no request that was refused", async () => {
  const fixture = create({
    maxBatchSize: 1,
    batching: { preserveOrdering: true, defaultQueuePolicy: { maxQueueSize: 1 } },
  });
  fixture.send({ inputs: input(1) });
  await fixture.clock.advance(10);
  fixture.send({ inputs: input(2) });
  await fixture.clock.settle();
  fixture.send({ inputs: input(3) });
  assert.equal(fixture.send({ inputs: input(4) }).error?.code, "UNAVAILABLE");
  const hit = fixture.send({ inputs: input(1) });
  assert.equal(hit.answeredMs, undefined);
  await fixture.clock.advance(100);
  assert.equal(hit.answeredMs, 30);
});
