import assert from "node:assert/strict";
import type { ExecuteRequest } from "../../../backends/backend.ts";
import { FakeClock } from "../fake_clock.ts";
import type { InstancePool } from "./instance_pool.ts";
import type { Job } from "./job.ts";
import { type SequenceHost, SequenceLane } from "./sequence_lane.ts";
import { SchedulerFixture } from "./scheduler_fixture.ts";
import { BOTH, type SequenceFixtureOptions } from "./sequence_batcher_fixture.ts";

/** The model counts down from the number in the id of its request. */
function countDown(): { outcome: NonNullable<SequenceFixtureOptions["outcome"]>; log: string[] } {
  const log: string[] = [];
  const turns = new Map<string, number>();
  const outcome = (request: ExecuteRequest) => {
    const { id, correlationId, sequenceStart, sequenceEnd } = request;
    const rest = (turns.get(id) ?? Number(id.slice(1))) - 1;
    turns.set(id, rest);
    log.push(`${id}:${correlationId}${sequenceStart ? "S" : ""}${sequenceEnd ? "E" : ""}`);
    request.send({ outputs: [] }, rest === 0);
    return { streamed: true as const, reschedule: rest > 0 };
  };
  return { outcome, log };
}

for (const [name, create] of BOTH) {
  Deno.test(`SequenceBatcher (iterative, ${name}) gives a request as many turns as it wants`, async () => {
    const { outcome, log } = countDown();
    const fixture = new SchedulerFixture({
      maxBatchSize: 1,
      outcome,
      sequences: { iterativeSequence: true, strategyChoice: create() },
    });
    let responseCount = 0;
    const onResponse = () => {
      responseCount++;
      return undefined;
    };
    const first = fixture.send({ id: "a3", sequence: 0n, start: false, end: false, onResponse });
    const second = fixture.send({ id: "b2", sequence: 0n, start: false, end: false, onResponse });
    const own = fixture.send({ id: "c2", sequence: 77n, start: true, end: true, onResponse });
    await fixture.clock.advance(10);
    assert.deepEqual(log, ["a3:1S", "a3:1", "a3:1", "b2:2S", "b2:2", "c2:77SE", "c2:77"]);
    assert.equal(responseCount, 7);
    for (const { answerCount, error } of [first, second, own]) {
      assert.deepEqual([answerCount, error], [1, undefined]);
    }
    const { success, pending, inflight, executionCount } = fixture.statistics.snapshot();
    assert.deepEqual([success, pending, inflight, executionCount], [3, 0, 0, 7]);
    assert.equal(fixture.scheduler.inflightCount, 0);
  });

  Deno.test(`SequenceBatcher (iterative, ${name}) ends a cancelled request between two turns`, async () => {
    const controller = new AbortController();
    const fixture = new SchedulerFixture({
      executeMs: 10,
      outcome: () => ({ streamed: true, reschedule: true }),
      sequences: { iterativeSequence: true, strategyChoice: create() },
    });
    const { signal } = controller;
    const sent = fixture.send({ sequence: 0n, signal, onResponse: () => undefined });
    await fixture.clock.advance(35);
    controller.abort();
    await fixture.clock.advance(100);
    assert.equal(sent.error?.code, "CANCELLED");
    assert.equal(fixture.executions.length, 4);
    const { failures, pending } = fixture.statistics.snapshot();
    assert.deepEqual([failures.CANCELED, pending], [1, 0]);
  });
}

Deno.test("SequenceLane lets others go on between turns without end", async () => {
  const clock = new FakeClock();
  const now = clock.now.bind(clock);
  let spentMs = 0;
  // Every look at the clock takes a while, as it does outside of tests.
  clock.now = () => now() + (spentMs += 0.1);
  let turnCount = 0;
  let isOtherDone = false;
  const pool = {
    idleCount: 1,
    heldBackCount: 0,
    onFinished: (_jobs: readonly Job[]) => {},
    run(jobs: readonly Job[]) {
      pool.idleCount = 0;
      void Promise.resolve().then(() => {
        pool.idleCount = 1;
        pool.onFinished(isOtherDone || ++turnCount === 100_000 ? [] : jobs);
      });
    },
  };
  const outcome = { streamed: true, reschedule: true };
  const further = { isNull: false, outcome } as unknown as Job;
  const host = { clock, isHeld: false, isStopped: false, executed() {}, dispatched() {} };
  const lane = new SequenceLane(pool as unknown as InstancePool, {
    host: host as unknown as SequenceHost,
    slotCount: 1,
    createStrategy: () => ({
      offer: () => {},
      dueMs: (nowMs) => isOtherDone || turnCount === 100_000 ? Infinity : nowMs,
      take: () => [further],
    }),
  });
  lane.slots.check = () => {};
  setTimeout(() => isOtherDone = true, 0);
  lane.wake();
  await clock.advance(10);
  await new Promise((resolve) => setTimeout(resolve, 5));
  await clock.advance(10);
  assert.ok(turnCount < 100_000, "nothing else had a turn");
});

Deno.test("SequenceBatcher refuses another turn to a model that is not iterative", async () => {
  for (const sequences of [undefined, {}]) {
    const fixture = new SchedulerFixture({
      outcome: () => ({ streamed: true, reschedule: true }),
      ...(sequences === undefined ? {} : { sequences }),
    });
    const sent = fixture.send({ onResponse: () => undefined });
    await fixture.clock.advance(10);
    assert.equal(
      sent.error?.message,
      "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not " +
        "configured to handle such a flag.",
    );
    assert.equal(fixture.statistics.snapshot().failures.BACKEND, 1);
  }
});
