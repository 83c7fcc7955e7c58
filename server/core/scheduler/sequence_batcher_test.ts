import assert from "node:assert/strict";
import { batches, BOTH, createFixture } from "./sequence_batcher_fixture.ts";

for (const [name, create] of BOTH) {
  Deno.test(`SequenceBatcher (${name}) refuses what is no sequence request`, () => {
    const fixture = createFixture(create());
    const texts = [
      [
        { sequence: 1n, rows: 2, start: true },
        "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher",
      ],
      [
        { sequence: 0n, start: true },
        "inference request to model 'm' must specify a non-zero or non-empty correlation ID",
      ],
      [
        { sequence: "", start: true },
        "inference request to model 'm' must specify a non-zero or non-empty correlation ID",
      ],
      [
        { sequence: 7n },
        "inference request for sequence 7 to model 'm' must specify the START flag on the first " +
        "request of the sequence",
      ],
      [
        { sequence: "seven", end: true },
        "inference request for sequence seven to model 'm' must specify the START flag on the " +
        "first request of the sequence",
      ],
    ] as const;
    for (const [request, text] of texts) {
      const { error } = fixture.send(request);
      assert.deepEqual([error?.code, error?.message], ["INVALID_ARG", text]);
    }
    assert.equal(fixture.statistics.snapshot().received, 0);
    assert.equal(fixture.scheduler.inflightCount, 0);
  });

  Deno.test(`SequenceBatcher (${name}) takes numbers and texts for different ids`, async () => {
    const fixture = createFixture(create());
    fixture.send({ sequence: "5", start: true });
    assert.match(fixture.send({ sequence: 5n }).error!.message, /START flag/);
    assert.equal(fixture.send({ sequence: "5" }).error, undefined);
    await fixture.clock.advance(10);
  });

  Deno.test(`SequenceBatcher (${name}) forgets an id with END and begins anew with START`, async () => {
    const fixture = createFixture(create());
    fixture.send({ sequence: 1n, start: true, end: true });
    assert.match(fixture.send({ sequence: 1n }).error!.message, /START flag/);
    fixture.send({ sequence: 1n, start: true });
    fixture.send({ sequence: 1n, start: true });
    await fixture.clock.advance(10);
    assert.equal(fixture.answered.filter(({ error }) => error === undefined).length, 3);
  });

  Deno.test(`SequenceBatcher (${name}) runs no two sequences of one id at a time`, async () => {
    const fixture = createFixture(create(), { executeMs: 5 });
    for (const id of ["a", "b", "c"]) {
      fixture.send({ id: `${id}1`, sequence: 1n, start: true });
      fixture.send({ id: `${id}2`, sequence: 1n, end: true });
    }
    const controller = new AbortController();
    const { signal } = controller;
    const cancelled = fixture.send({ sequence: 1n, start: true, end: true, signal });
    fixture.send({ id: "d", sequence: 1n, start: true, end: true });
    fixture.send({ id: "other", sequence: 2n, start: true, end: true });
    await fixture.clock.advance(1);
    controller.abort();
    await fixture.clock.advance(100);
    assert.equal(cancelled.error?.code, "CANCELLED");
    const own = fixture.executions.flatMap(({ ids }) => ids).filter((id) => /^[a-d]\d?$/.test(id));
    assert.deepEqual(own, ["a1", "a2", "b1", "b2", "c1", "c2", "d"]);
    assert.ok(
      batches(fixture).every((ids) =>
        ids.split(",").filter((id) => id !== "other" && id !== "").length <= 1
      ),
    );
    assert.ok(batches(fixture)[0]!.includes("other"), "nobody else has to wait");
  });

  Deno.test(`SequenceBatcher (${name}) lets the next sequence wait for a slot`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1 });
    fixture.send({ id: "a1", sequence: 1n, start: true });
    fixture.send({ id: "b1", sequence: 2n, start: true });
    fixture.send({ id: "c1", sequence: 3n, start: true, end: true });
    fixture.send({ id: "b2", sequence: 2n, end: true });
    await fixture.clock.advance(10);
    assert.deepEqual(batches(fixture), ["a1"]);
    fixture.send({ id: "a2", sequence: 1n, end: true });
    await fixture.clock.advance(10);
    assert.deepEqual(batches(fixture), ["a1", "a2", "b1", "b2", "c1"]);
  });

  Deno.test(`SequenceBatcher (${name}) frees the slot of a silent sequence`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1 }, 500);
    fixture.send({ id: "a1", sequence: 1n, start: true });
    const waiting = fixture.send({ id: "b1", sequence: 2n, start: true, end: true });
    await fixture.clock.advance(499);
    assert.equal(waiting.answeredMs, undefined);
    await fixture.clock.advance(2);
    assert.equal(waiting.answeredMs, 500);
    assert.match(fixture.send({ sequence: 1n }).error!.message, /START flag/);
  });

  Deno.test(`SequenceBatcher (${name}) never drops a silent sequence of the backlog`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1 }, 100);
    fixture.send({ sequence: 1n, start: true });
    const waiting = fixture.send({ sequence: 2n, start: true });
    for (let round = 0; round < 10; round++) {
      await fixture.clock.advance(90);
      fixture.send({ sequence: 1n });
    }
    assert.equal(waiting.answeredMs, undefined);
    fixture.send({ sequence: 1n, end: true });
    await fixture.clock.advance(10);
    assert.equal(waiting.error, undefined);
    assert.equal(waiting.answerCount, 1);
  });

  for (const idleMs of [5000, 30]) {
    Deno.test(
      `SequenceBatcher (${name}) answers all that waits when END comes, idle limit ${idleMs} ms`,
      async () => {
        const fixture = createFixture(create(), { executeMs: 40 }, idleMs);
        const ids: string[] = [];
        for (let index = 0; index < 22; index++) {
          const id = `r${index}`;
          ids.push(id);
          fixture.send({ id, sequence: 1n, start: index === 0, end: index === 21 });
          await fixture.clock.advance(20);
        }
        await fixture.clock.advance(2000);
        assert.deepEqual(fixture.answered.map(({ id }) => id), ids);
        assert.ok(fixture.answered.every(({ error }) => error === undefined));
        assert.equal(fixture.clock.timerCount, 0);
      },
    );
  }

  Deno.test(`SequenceBatcher (${name}) keeps a sequence whose request runs for long`, async () => {
    const fixture = createFixture(create(), { executeMs: 160 }, 50);
    fixture.send({ sequence: 1n, start: true });
    await fixture.clock.advance(200);
    assert.equal(fixture.send({ sequence: 1n }).error, undefined);
    await fixture.clock.advance(500);
  });

  Deno.test(`SequenceBatcher (${name}) frees a slot once when cancel and idle limit meet`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1, executeMs: 10 }, 100);
    const controller = new AbortController();
    fixture.send({ sequence: 9n, start: true, end: true });
    const cancelled = fixture.send({ sequence: 1n, start: true, signal: controller.signal });
    fixture.clock.setTimer(100, () => controller.abort());
    fixture.send({ id: "hold", sequence: 9n, start: true });
    await fixture.clock.advance(100);
    fixture.send({ id: "two", sequence: 2n, start: true });
    const third = fixture.send({ id: "three", sequence: 3n, start: true });
    await fixture.clock.advance(60);
    assert.equal(cancelled.answerCount, 1);
    assert.equal(third.answeredMs, undefined);
    await fixture.clock.advance(1000);
    assert.equal(third.error, undefined);
    assert.deepEqual(batches(fixture).slice(-2), ["two", "three"]);
  });

  Deno.test(`SequenceBatcher (${name}) rejects a sequence that waited too long for a slot`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1 }, 60_000);
    fixture.send({ sequence: 1n, start: true });
    const waiting = [
      fixture.send({ sequence: 2n, start: true, timeoutUs: 50_000 }),
      fixture.send({ sequence: 2n, timeoutUs: 20_000 }),
      fixture.send({ sequence: 2n }),
    ];
    const patient = fixture.send({ sequence: 3n, start: true });
    await fixture.clock.advance(100);
    for (const { error, answeredMs } of waiting) {
      assert.deepEqual([error?.code, error?.message, answeredMs], [
        "UNAVAILABLE",
        "timeout of the corresponding sequence has been expired",
        20,
      ]);
    }
    assert.match(fixture.send({ sequence: 2n }).error!.message, /START flag/);
    assert.equal(patient.answeredMs, undefined);
    assert.equal(fixture.statistics.snapshot().failures.REJECTED, 3);
    fixture.send({ sequence: 1n, end: true });
    await fixture.clock.advance(10);
    assert.equal(patient.error, undefined);
  });

  Deno.test(`SequenceBatcher (${name}) has no timeout for a sequence with a slot`, async () => {
    const fixture = createFixture(create(), { executeMs: 50 });
    fixture.send({ sequence: 1n, start: true, timeoutUs: 1000 });
    const second = fixture.send({ sequence: 1n, end: true, timeoutUs: 1000 });
    await fixture.clock.advance(200);
    assert.equal(second.error, undefined);
  });

  Deno.test(`SequenceBatcher (${name}) cancels what follows a cancelled request`, async () => {
    const fixture = createFixture(create(), { executeMs: 10 });
    const controller = new AbortController();
    const sent = [
      fixture.send({ id: "1", sequence: 1n, start: true }),
      fixture.send({ id: "2", sequence: 1n }),
      fixture.send({ id: "3", sequence: 1n }),
      fixture.send({ id: "4", sequence: 1n, signal: controller.signal }),
      fixture.send({ id: "5", sequence: 1n }),
    ];
    await fixture.clock.advance(5);
    controller.abort();
    assert.match(fixture.send({ sequence: 1n }).error!.message, /START flag/);
    await fixture.clock.advance(100);
    assert.deepEqual(batches(fixture), ["1", "2", "3"]);
    const codes = sent.map(({ error }) => error?.code);
    assert.deepEqual(codes, [undefined, undefined, undefined, "CANCELLED", "CANCELLED"]);
    assert.equal(fixture.statistics.snapshot().failures.CANCELED, 2);
    assert.equal(fixture.clock.timerCount, 0);
  });

  Deno.test(`SequenceBatcher (${name}) drops a waiting sequence whole when it is cancelled`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1 });
    const controller = new AbortController();
    fixture.send({ sequence: 1n, start: true });
    const waiting = [
      fixture.send({ sequence: 2n, start: true }),
      fixture.send({ sequence: 2n, signal: controller.signal }),
    ];
    await fixture.clock.advance(1);
    controller.abort();
    assert.deepEqual(waiting.map(({ error }) => error?.code), ["CANCELLED", "CANCELLED"]);
    await fixture.clock.advance(2000);
    assert.equal(fixture.executions.length, 1);
  });

  Deno.test(`SequenceBatcher (${name}) goes on after a failed request`, async () => {
    const failures = [undefined, new Error("Out of luck"), undefined];
    const fixture = createFixture(create(), { failure: () => failures.shift() });
    const sent = [
      fixture.send({ sequence: 1n, start: true }),
      fixture.send({ sequence: 1n }),
      fixture.send({ sequence: 1n, end: true }),
    ];
    await fixture.clock.advance(10);
    const messages = sent.map(({ error }) => error?.message);
    assert.deepEqual(messages, [undefined, "Out of luck", undefined]);
  });

  Deno.test(`SequenceBatcher.stop() (${name}) refuses only new sequences while it drains`, async () => {
    const fixture = createFixture(create(), { executeMs: 5 });
    fixture.send({ sequence: 1n, start: true });
    let isStopped = false;
    fixture.scheduler.stop({ finishesSequences: true }).then(() => isStopped = true);
    for (const sequence of [1n, 2n]) {
      const { error } = fixture.send({ sequence, start: true });
      assert.deepEqual([error?.code, error?.message], [
        "UNAVAILABLE",
        "Server is stopping, scheduler for model has stopped accepting new inference requests",
      ]);
    }
    await fixture.clock.advance(3);
    const more = [fixture.send({ sequence: 1n }), fixture.send({ sequence: 1n })];
    await fixture.clock.advance(11);
    assert.equal(isStopped, false);
    await fixture.clock.advance(1);
    assert.equal(isStopped, true);
    assert.ok(more.every(({ error }) => error === undefined));
    assert.equal(fixture.send({ sequence: 1n, end: true }).error?.code, "UNAVAILABLE");
    assert.equal(fixture.clock.timerCount, 0);
  });

  Deno.test(`SequenceBatcher.stop() (${name}) does not wait for silent sequences`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1, executeMs: 5 }, 60_000);
    fixture.send({ sequence: 1n, start: true });
    const waiting = [
      fixture.send({ sequence: 2n, start: true }),
      fixture.send({ sequence: 3n, start: true }),
    ];
    await fixture.clock.advance(20);
    fixture.scheduler.stop({ finishesSequences: true });
    await fixture.clock.advance(20);
    assert.deepEqual(waiting.map(({ answerCount, error }) => [answerCount, error]), [
      [1, undefined],
      [1, undefined],
    ]);
    assert.equal(fixture.scheduler.inflightCount, 0);
    assert.equal(fixture.clock.timerCount, 0);
  });

  Deno.test(`SequenceBatcher.stop() (${name}) gives up sequences when the model goes`, async () => {
    const fixture = createFixture(create(), { executeMs: 5 });
    fixture.send({ sequence: 1n, start: true });
    const second = fixture.send({ sequence: 1n });
    let isStopped = false;
    fixture.scheduler.stop().then(() => isStopped = true);
    assert.match(fixture.send({ sequence: 1n }).error!.message, /START flag/);
    await fixture.clock.advance(10);
    assert.equal(second.error, undefined);
    assert.equal(isStopped, true);
    assert.equal(fixture.clock.timerCount, 0);
  });

  Deno.test(`SequenceBatcher (${name}) waits for the requests of the test hooks`, async () => {
    const fixture = createFixture(create(), {
      maxBatchSize: 2,
      delaySchedulerCount: 3,
      backlogDelayCount: 2,
    });
    fixture.send({ sequence: 1n, start: true });
    fixture.send({ sequence: 2n, start: true });
    fixture.send({ sequence: 1n, end: true });
    await fixture.clock.advance(1000);
    fixture.send({ sequence: 3n, start: true });
    await fixture.clock.advance(1000);
    assert.equal(fixture.executions.length, 0);
    fixture.send({ sequence: 3n, end: true });
    await fixture.clock.advance(1000);
    assert.equal(fixture.answered.length, 5);
    assert.deepEqual(fixture.batchRows[0], 2);
  });

  Deno.test(`SequenceBatcher (${name}) keeps a sequence on its instance`, async () => {
    const fixture = createFixture(create(), { instanceCount: 2, maxBatchSize: 1, executeMs: 1 });
    for (let round = 0; round < 5; round++) {
      fixture.send({ id: "a", sequence: 1n, start: round === 0 });
      fixture.send({ id: "b", sequence: 2n, start: round === 0 });
      await fixture.clock.advance(5);
    }
    const seen = new Set(fixture.executions.map(({ ids, instance }) => ids.join() + instance));
    assert.deepEqual([...seen].sort(), ["am_0", "bm_1"]);
  });
}
