import assert from "node:assert/strict";
import { ServerError } from "../../../proto/status.ts";
import { tensor } from "./scheduler_fixture.ts";
import type { InstanceScheduler } from "./scheduler.ts";
import { batches, BOTH, createFixture, direct, oldest } from "./sequence_batcher_fixture.ts";

Deno.test("SequenceBatcher (direct) keeps a place per sequence and fills gaps with null requests", async () => {
  const fixture = createFixture(
    direct({ maxQueueDelayMicroseconds: 5000n, minimumSlotUtilization: 1 }),
    { maxBatchSize: 3, outcome: () => ({ outputs: [] }) },
  );
  const input = tensor("X", [1, 1], new Uint8Array(4).fill(7));
  for (const sequence of [1n, 2n, 3n]) {
    fixture.send({ id: `${sequence}`, sequence, start: true, inputs: [input] });
  }
  await fixture.clock.advance(1);
  fixture.send({ id: "3b", sequence: 3n, inputs: [input] });
  await fixture.clock.advance(10);
  fixture.send({ id: "1b", sequence: 1n, inputs: [input] });
  await fixture.clock.advance(10);
  assert.deepEqual(batches(fixture), ["1,2,3", ",,3b", "1b"]);
  assert.equal(fixture.executions[1]!.atMs, 6);
  const nullInput = fixture.executions[1]!.requests[0]!.inputs[0]!;
  assert.deepEqual([nullInput.shape, [...nullInput.data]], [[1, 1], [0, 0, 0, 0]]);
  const { success, inferenceCount, executionCount, pending } = fixture.statistics.snapshot();
  assert.deepEqual([success, inferenceCount, executionCount, pending], [5, 5, 3, 0]);
  const sizes = fixture.statistics.toMessage().batchStats.map(({ batchSize }) => Number(batchSize));
  assert.deepEqual(sizes, [1, 3]);
});

Deno.test("SequenceBatcher (direct) leaves other shapes for the next batch", async () => {
  const sizes: number[] = [];
  const fixture = createFixture(direct(), {
    maxBatchSize: 4,
    inputs: [{ name: "X", dataType: 11, dims: [-1n] }],
    outcome: ({ inputs }) => {
      sizes.push(inputs[0]!.shape[1]!);
      return { outputs: [] };
    },
  });
  const small = tensor("X", [1, 1], new Uint8Array(4));
  const large = tensor("X", [1, 2], new Uint8Array(8));
  fixture.send({ id: "a", sequence: 1n, start: true, inputs: [small] });
  fixture.send({ id: "b", sequence: 2n, start: true, inputs: [large] });
  fixture.send({ id: "c", sequence: 3n, start: true, inputs: [small] });
  await fixture.clock.advance(10);
  assert.deepEqual(batches(fixture), ["a,,c", ",b"]);
  assert.deepEqual(sizes, [1, 1, 1, 2, 2]);
});

Deno.test("SequenceBatcher (direct) runs at once without utilization, whatever the delay", async () => {
  const fixture = createFixture(direct({ maxQueueDelayMicroseconds: 900_000n }));
  const { id } = fixture.send({ sequence: 1n, start: true });
  await fixture.clock.advance(0);
  assert.deepEqual(batches(fixture), [id]);
});

Deno.test("SequenceBatcher (direct) runs when enough slots have a request", async () => {
  const fixture = createFixture(
    direct({ maxQueueDelayMicroseconds: 50_000n, minimumSlotUtilization: 0.5 }),
    { maxBatchSize: 4 },
  );
  fixture.send({ id: "a", sequence: 1n, start: true });
  await fixture.clock.advance(20);
  fixture.send({ id: "b", sequence: 2n, start: true });
  await fixture.clock.advance(0);
  assert.deepEqual(batches(fixture), ["a,b"]);
  fixture.send({ id: "c", sequence: 1n });
  await fixture.clock.advance(100);
  assert.equal(fixture.executions[1]!.atMs, 70);
});

Deno.test("SequenceBatcher (oldest) joins one request per sequence, up to the preferred size", async () => {
  const fixture = createFixture(
    oldest({
      maxCandidateSequences: 6,
      preferredBatchSize: [3],
      maxQueueDelayMicroseconds: 40_000n,
    }),
    { maxBatchSize: 4 },
  );
  for (const sequence of [1n, 2n]) {
    fixture.send({ id: `${sequence}a`, sequence, start: true });
    fixture.send({ id: `${sequence}b`, sequence });
  }
  await fixture.clock.advance(10);
  assert.deepEqual(batches(fixture), []);
  fixture.send({ id: "3a", sequence: 3n, start: true });
  await fixture.clock.advance(0);
  assert.deepEqual(batches(fixture), ["1a,2a,3a"]);
  await fixture.clock.advance(100);
  assert.deepEqual(batches(fixture).slice(1), ["1b,2b"]);
  assert.equal(fixture.executions[1]!.atMs, 40);
});

Deno.test("SequenceBatcher (oldest) has as many slots as candidates", async () => {
  const fixture = createFixture(oldest({ maxCandidateSequences: 2 }), { maxBatchSize: 4 });
  for (const sequence of [1n, 2n, 3n]) fixture.send({ id: `${sequence}`, sequence, start: true });
  await fixture.clock.advance(10);
  assert.deepEqual(batches(fixture), ["1,2"]);
});

Deno.test("SequenceBatcher fails a request whose model says nothing and keeps the slot usable", async () => {
  const fixture = createFixture(direct(), {
    maxBatchSize: 1,
    outcome: () => ({ error: new ServerError("INTERNAL", "No") }),
  });
  const first = fixture.send({ sequence: 1n, start: true, end: true });
  const second = fixture.send({ sequence: 2n, start: true, end: true });
  await fixture.clock.advance(10);
  assert.deepEqual([first.error?.message, second.error?.message], ["No", "No"]);
});

Deno.test("SequenceBatcher begins with the next request when START failed", async () => {
  const starts: boolean[] = [];
  const fixture = createFixture(direct(), {
    outcome: ({ sequenceStart }) => {
      starts.push(sequenceStart);
      return starts.length < 3 ? { error: new ServerError("INTERNAL", "No") } : { outputs: [] };
    },
  });
  fixture.send({ sequence: 1n, start: true });
  for (let round = 0; round < 3; round++) fixture.send({ sequence: 1n });
  await fixture.clock.advance(10);
  assert.deepEqual(starts, [true, true, true, false]);
});

for (const [name, create] of BOTH) {
  Deno.test(`SequenceBatcher.addInstance() (${name}) serves the backlog at once`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1 });
    fixture.send({ id: "a", sequence: 1n, start: true });
    fixture.send({ id: "b", sequence: 2n, start: true });
    await fixture.clock.advance(5);
    assert.deepEqual(batches(fixture), ["a"]);
    (fixture.scheduler as InstanceScheduler).addInstance(fixture.createInstance("more"));
    await fixture.clock.advance(5);
    assert.deepEqual(batches(fixture), ["a", "b"]);
    assert.equal(fixture.executions[1]!.instance, "more");
  });

  Deno.test(`SequenceBatcher.removeInstance() (${name}) finishes what the instance has`, async () => {
    const fixture = createFixture(create(), { maxBatchSize: 1, executeMs: 5 });
    const scheduler = fixture.scheduler as InstanceScheduler;
    const [first] = fixture.instances;
    assert.throws(() => scheduler.removeInstance(first!), RangeError);
    fixture.send({ id: "a", sequence: 1n, start: true });
    scheduler.addInstance(fixture.createInstance("more"));
    let isGone = false;
    scheduler.removeInstance(first!).then(() => isGone = true);
    for (const id of ["b", "c"]) fixture.send({ id, start: true, end: true, sequence: id });
    await fixture.clock.advance(50);
    assert.equal(isGone, false);
    const places = () => fixture.executions.map(({ ids, instance }) => `${ids.join()}@${instance}`);
    assert.deepEqual(places(), ["a@m_0", "b@more", "c@more"]);
    fixture.send({ id: "d", sequence: 1n, end: true });
    await fixture.clock.advance(3);
    assert.equal(isGone, false);
    await fixture.clock.advance(3);
    assert.equal(isGone, true);
    assert.equal(places().at(-1), "d@m_0");
  });
}
