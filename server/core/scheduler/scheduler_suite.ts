import assert from "node:assert/strict";
import { ServerError } from "../../../proto/status.ts";
import type { SchedulerFixture, SchedulerFixtureOptions } from "./scheduler_fixture.ts";

type CreateFixture = (options?: SchedulerFixtureOptions) => SchedulerFixture;
type Test = (what: string, run: () => Promise<void>) => void;

/** Behaviour that every scheduler must show; `create` gives one that runs a lone request at once. */
export function testScheduler(
  name: string,
  create: CreateFixture,
  { stopPrefix = "[request id: late] " }: { readonly stopPrefix?: string } = {},
): void {
  const test: Test = (what, run) => Deno.test(`${name} ${what}`, run);
  testExecution(test, create);
  testCancellation(test, create);
  testStop(test, create, stopPrefix);
}

function testExecution(test: Test, create: CreateFixture): void {
  test("runs a request at once when an instance is free", async () => {
    const fixture = create();
    const sent = fixture.send();
    await fixture.clock.advance(0);
    assert.equal(sent.answeredMs, 0);
    assert.equal(sent.error, undefined);
    assert.equal(fixture.scheduler.inflightCount, 0);
  });

  test("serves waiting requests in their order", async () => {
    const fixture = create({ executeMs: 10, maxBatchSize: 1 });
    const ids = fixture.sendAll([1, 1, 1, 1]).map(({ id }) => id);
    await fixture.clock.advance(100);
    assert.deepEqual(fixture.executions.flatMap((execution) => execution.ids), ids);
    assert.deepEqual(fixture.answered.map(({ id }) => id), ids);
  });

  test("uses every instance at the same time", async () => {
    const fixture = create({ executeMs: 10, instanceCount: 3, maxBatchSize: 1 });
    fixture.sendAll([1, 1, 1]);
    await fixture.clock.advance(10);
    assert.equal(new Set(fixture.executions.map(({ instance }) => instance)).size, 3);
    assert.equal(fixture.answered.length, 3);
  });
}

function testCancellation(test: Test, create: CreateFixture): void {
  test("answers a request that was cancelled before it came, without running it", async () => {
    const fixture = create();
    const sent = fixture.send({ signal: AbortSignal.abort() });
    await fixture.clock.advance(0);
    assert.equal(sent.error?.code, "CANCELLED");
    assert.equal(fixture.executions.length, 0);
    assert.equal(fixture.statistics.snapshot().failures.CANCELED, 1);
  });

  test("drops a waiting request as soon as it is cancelled", async () => {
    const fixture = create({ executeMs: 50, maxBatchSize: 1 });
    fixture.send();
    const controller = new AbortController();
    const waiting = fixture.send({ signal: controller.signal });
    await fixture.clock.advance(10);
    controller.abort();
    assert.equal(waiting.error?.code, "CANCELLED");
    assert.equal(waiting.answeredMs, 10);
    await fixture.clock.advance(100);
    assert.equal(fixture.executions.length, 1);
    assert.equal(fixture.statistics.snapshot().failures.CANCELED, 1);
    assert.equal(fixture.statistics.snapshot().pending, 0);
  });

  test("tells the instance about a cancelled request and waits for its answer", async () => {
    const fixture = create({
      executeMs: 50,
      outcome: ({ signal }) =>
        signal?.aborted ? { error: new ServerError("CANCELLED", "") } : { outputs: [] },
    });
    const controller = new AbortController();
    const sent = fixture.send({ signal: controller.signal });
    await fixture.clock.advance(10);
    controller.abort();
    await fixture.clock.settle();
    assert.equal(sent.answeredMs, undefined);
    await fixture.clock.advance(100);
    assert.equal(sent.answeredMs, 50);
    assert.equal(sent.error?.code, "CANCELLED");
    assert.equal(fixture.statistics.snapshot().failures.CANCELED, 1);
  });
}

function testStop(test: Test, create: CreateFixture, stopPrefix: string): void {
  test("fails the requests of an execution that throws, and goes on", async () => {
    const failures = [new Error("Out of luck"), undefined];
    const fixture = create({ failure: () => failures.shift() });
    const first = fixture.send();
    await fixture.clock.advance(0);
    const second = fixture.send();
    await fixture.clock.advance(0);
    assert.equal(first.error?.message, "Out of luck");
    assert.equal(first.error?.code, "INTERNAL");
    assert.equal(second.error, undefined);
    assert.equal(fixture.statistics.snapshot().failures.BACKEND, 1);
  });

  test("refuses new requests once it is stopped, and finishes those it has", async () => {
    const fixture = create({ executeMs: 10, maxBatchSize: 1 });
    const taken = fixture.sendAll([1, 1, 1]);
    let isStopped = false;
    fixture.scheduler.stop().then(() => isStopped = true);
    const late = fixture.send({ id: "late" });
    assert.equal(late.error?.code, "UNAVAILABLE");
    assert.equal(
      late.error?.message,
      `${stopPrefix}Server is stopping, scheduler for model has stopped accepting new ` +
        "inference requests",
    );
    await fixture.clock.advance(20);
    assert.equal(isStopped, false);
    assert.equal(fixture.scheduler.inflightCount, 1);
    await fixture.clock.advance(10);
    assert.equal(isStopped, true);
    assert.ok(taken.every(({ error, answerCount }) => error === undefined && answerCount === 1));
    assert.equal(fixture.statistics.snapshot().received, 3);
  });

  test("takes calls of models when it is stopped, and tells again when none is left", async () => {
    const fixture = create({ executeMs: 10 });
    await fixture.scheduler.stop();
    const call = fixture.send({ isCall: true });
    assert.equal(fixture.send().error?.code, "UNAVAILABLE");
    assert.equal(fixture.scheduler.inflightCount, 1);
    let isStopped = false;
    fixture.scheduler.stop().then(() => isStopped = true);
    await fixture.clock.advance(9);
    assert.deepEqual([isStopped, call.answerCount], [false, 0]);
    await fixture.clock.advance(1);
    assert.deepEqual([isStopped, call.answerCount, call.error], [true, 1, undefined]);
    assert.equal(fixture.clock.timerCount, 0);
  });

  test("stops at once when it has nothing to do", async () => {
    const fixture = create();
    await fixture.scheduler.stop();
    assert.equal(fixture.scheduler.inflightCount, 0);
  });

  test("lets go of a signal when a request was answered", async () => {
    const fixture = create({ executeMs: 10, maxBatchSize: 1 });
    const listeners = new CountingSignal();
    fixture.send();
    fixture.send({ signal: listeners.signal });
    await fixture.clock.settle();
    assert.equal(listeners.count, 1);
    await fixture.clock.advance(100);
    assert.equal(listeners.count, 0);
    assert.equal(fixture.clock.timerCount, 0);
  });
}

/** A signal that counts who listens to it. */
class CountingSignal {
  readonly signal = new AbortController().signal;
  count = 0;

  constructor() {
    const { signal } = this;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      this.count++;
      add(...args);
    };
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      this.count--;
      remove(...args);
    };
  }
}
