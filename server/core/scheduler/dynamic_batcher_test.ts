import assert from "node:assert/strict";
import { DataType, ModelQueuePolicy_TimeoutAction } from "../../../proto/gen/model_config_pb.ts";
import { SchedulerFixture, type SchedulerFixtureOptions, tensor } from "./scheduler_fixture.ts";
import { testScheduler } from "./scheduler_suite.ts";

type Batching = NonNullable<SchedulerFixtureOptions["batching"]>;

function createBatcher(
  batching: Batching,
  options: SchedulerFixtureOptions = {},
): SchedulerFixture {
  return new SchedulerFixture({ ...options, batching });
}

const SECOND_US = 1_000_000n;
const { REJECT, DELAY } = ModelQueuePolicy_TimeoutAction;

testScheduler("DynamicBatcher", (options = {}) => createBatcher({}, options));

Deno.test("DynamicBatcher joins requests that arrive in the same step", async () => {
  const fixture = createBatcher({});
  fixture.sendAll([1, 1, 1]);
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [3]);
});

Deno.test("DynamicBatcher never exceeds max_batch_size", async () => {
  const fixture = createBatcher({}, { executeMs: 10 });
  fixture.sendAll([1, 5, 4, 3, 8, 1]);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [6, 7, 8, 1]);
});

Deno.test("DynamicBatcher sends a full batch before the delay is over", async () => {
  const fixture = createBatcher({ maxQueueDelayMicroseconds: SECOND_US });
  fixture.sendAll([4, 4]);
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [8]);
});

Deno.test("DynamicBatcher waits for the delay of the oldest request", async () => {
  const fixture = createBatcher({ maxQueueDelayMicroseconds: 100_000n });
  fixture.send();
  await fixture.clock.advance(60);
  fixture.send();
  await fixture.clock.advance(39);
  assert.deepEqual(fixture.batchRows, []);
  await fixture.clock.advance(1);
  assert.deepEqual(fixture.batchRows, [2]);
  assert.equal(fixture.clock.timerCount, 0);
});

Deno.test("DynamicBatcher without a delay stops at the largest preferred size", async () => {
  const fixture = createBatcher({ preferredBatchSize: [2, 4] }, { executeMs: 10 });
  fixture.sendAll([1, 1, 1, 1, 1, 1, 1]);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [4, 2, 1]);
});

Deno.test("DynamicBatcher sends a request above every preferred size", async () => {
  const fixture = createBatcher({
    preferredBatchSize: [2],
    maxQueueDelayMicroseconds: SECOND_US,
  });
  fixture.send({ rows: 7 });
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [7]);
});

Deno.test("DynamicBatcher serves a model without batch dimension one by one", async () => {
  const fixture = createBatcher({ preferredBatchSize: [1] }, {
    maxBatchSize: 0,
    executeMs: 10,
  });
  fixture.sendAll([1, 1, 1]);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [1, 1, 1]);
});

Deno.test("DynamicBatcher refuses what exceeds max_queue_size, exactly", async () => {
  const fixture = createBatcher({ defaultQueuePolicy: { maxQueueSize: 3 } }, {
    executeMs: 10,
    maxBatchSize: 1,
  });
  const sent = fixture.sendAll([1, 1, 1, 1, 1, 1]);
  await fixture.clock.advance(100);
  assert.deepEqual(sent.map(({ error }) => error?.message), [
    undefined,
    undefined,
    undefined,
    undefined,
    "[request id: 4] Exceeds maximum queue size",
    "[request id: 5] Exceeds maximum queue size",
  ]);
  assert.equal(sent[4]!.error?.code, "UNAVAILABLE");
  // Refused at the door: not counted (observability.md §1.2).
  assert.equal(fixture.statistics.snapshot().received, 4);
});

Deno.test("DynamicBatcher takes a shorter timeout of the request, never a longer one", async () => {
  const policy = {
    timeoutAction: REJECT,
    defaultTimeoutMicroseconds: SECOND_US,
    allowTimeoutOverride: true,
  };
  const fixture = createBatcher({ defaultQueuePolicy: policy }, { executeMs: 60_000 });
  fixture.send();
  await fixture.clock.advance(0);
  const shorter = fixture.send({ timeoutUs: 200_000 });
  const longer = fixture.send({ timeoutUs: 5_000_000 });
  await fixture.clock.advance(10_000);
  assert.equal(shorter.answeredMs, 200);
  assert.equal(longer.answeredMs, 1000);
});

Deno.test("DynamicBatcher ignores the timeout of a request where the policy does not allow it", async () => {
  for (
    const policy of [{ defaultTimeoutMicroseconds: SECOND_US }, { allowTimeoutOverride: true }]
  ) {
    const fixture = createBatcher({ defaultQueuePolicy: policy }, { executeMs: 500 });
    fixture.send();
    await fixture.clock.advance(0);
    const sent = fixture.send({ timeoutUs: 100_000 });
    await fixture.clock.advance(2000);
    assert.equal(sent.error, undefined);
  }
});

Deno.test("DynamicBatcher serves better levels first, equal ones in order", async () => {
  const fixture = createBatcher({ priorityLevels: 3n, defaultPriorityLevel: 2n }, {
    executeMs: 10,
    maxBatchSize: 1,
  });
  fixture.send({ id: "running" });
  await fixture.clock.advance(0);
  for (const [id, priority] of [["c", 3], ["b1", 0], ["a1", 1], ["b2", 7], ["a2", 1]] as const) {
    fixture.send({ id, priority });
  }
  await fixture.clock.advance(1000);
  assert.deepEqual(fixture.answered.map(({ id }) => id), ["running", "a1", "a2", "b1", "b2", "c"]);
});

Deno.test("DynamicBatcher applies the policy of each level", async () => {
  const fixture = createBatcher({
    priorityLevels: 2n,
    defaultPriorityLevel: 1n,
    defaultQueuePolicy: { maxQueueSize: 2 },
    priorityQueuePolicy: {
      "2": { timeoutAction: REJECT, defaultTimeoutMicroseconds: 50_000n },
    },
  }, { executeMs: 1000 });
  fixture.send();
  await fixture.clock.advance(0);
  const first = [1, 1, 1].map((priority) => fixture.send({ priority }));
  const second = [2, 2, 2].map((priority) => fixture.send({ priority }));
  await fixture.clock.advance(5000);
  assert.deepEqual(first.map(({ error }) => error?.code), [undefined, undefined, "UNAVAILABLE"]);
  assert.ok(second.every(({ answeredMs }) => answeredMs === 50));
});

Deno.test("DynamicBatcher puts a delayed request behind its level, before worse levels", async () => {
  const policy = { timeoutAction: DELAY, defaultTimeoutMicroseconds: 50_000n };
  const fixture = createBatcher({
    priorityLevels: 2n,
    defaultPriorityLevel: 1n,
    priorityQueuePolicy: { "1": policy },
  }, { executeMs: 100, maxBatchSize: 1 });
  fixture.send({ id: "running" });
  await fixture.clock.advance(0);
  fixture.send({ id: "late", priority: 1 });
  await fixture.clock.advance(60);
  fixture.send({ id: "worse", priority: 2 });
  fixture.send({ id: "in time", priority: 1 });
  await fixture.clock.advance(1000);
  assert.deepEqual(fixture.answered.map(({ id }) => id), ["running", "in time", "late", "worse"]);
});

Deno.test("DynamicBatcher counts delayed requests in max_queue_size", async () => {
  const policy = { timeoutAction: DELAY, defaultTimeoutMicroseconds: 1000n, maxQueueSize: 1 };
  const fixture = createBatcher({ defaultQueuePolicy: policy }, {
    executeMs: 100,
    maxBatchSize: 1,
  });
  fixture.sendAll([1, 1]);
  await fixture.clock.advance(10);
  assert.equal(fixture.send().error?.code, "UNAVAILABLE");
});

Deno.test("DynamicBatcher forms the batch anew when a cancelled request stood in the way", async () => {
  const input = { name: "X", dataType: DataType.TYPE_FP32, dims: [-1n] };
  const fixture = createBatcher({ maxQueueDelayMicroseconds: SECOND_US, preferredBatchSize: [2] }, {
    inputs: [input],
    executeMs: 10,
  });
  const controller = new AbortController();
  fixture.send({ id: "running", rows: 2, inputs: [tensor("X", [2, 1])] });
  await fixture.clock.advance(0);
  fixture.send({ id: "a", inputs: [tensor("X", [1, 3])] });
  fixture.send({ id: "gone", inputs: [tensor("X", [1, 9])], signal: controller.signal });
  fixture.send({ id: "b", inputs: [tensor("X", [1, 3])] });
  await fixture.clock.settle();
  controller.abort();
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.executions.map(({ ids }) => ids), [["running"], ["a", "b"]]);
});

Deno.test("DynamicBatcher joins only requests with the same optional inputs", async () => {
  const required = { name: "X", dataType: DataType.TYPE_FP32, dims: [1n] };
  const fixture = createBatcher({}, {
    inputs: [required, { ...required, name: "O", optional: true }],
    executeMs: 10,
  });
  const withOptional = [tensor("X", [1, 1]), tensor("O", [1, 1])];
  fixture.send({ id: "a", inputs: [tensor("X", [1, 1])] });
  fixture.send({ id: "b", inputs: [tensor("X", [1, 1])] });
  fixture.send({ id: "c", inputs: withOptional });
  fixture.send({ id: "d", inputs: withOptional });
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.executions.map(({ ids }) => ids), [["a", "b"], ["c", "d"]]);
});

Deno.test("DynamicBatcher joins only requests with equal content of a shape tensor", async () => {
  const input = { name: "S", dataType: DataType.TYPE_INT32, dims: [1n], isShapeTensor: true };
  const fixture = createBatcher({}, { inputs: [input], executeMs: 10 });
  // The first value is the batch size, which adds up.
  const content = (rows: number, value: number) => [
    tensor("S", [2], new Uint8Array([rows, 0, 0, 0, value, 0, 0, 0])),
  ];
  fixture.send({ id: "a", inputs: content(1, 1) });
  fixture.send({ id: "b", inputs: content(3, 1) });
  fixture.send({ id: "c", inputs: content(1, 2) });
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.executions.map(({ ids }) => ids), [["a", "b"], ["c"]]);
});

Deno.test("DynamicBatcher with preserve_ordering answers in the order of arrival", async () => {
  const options = { instanceCount: 2, executeMs: [100, 10], maxBatchSize: 1 };
  const ordered = createBatcher({ preserveOrdering: true }, options);
  ordered.sendAll([1, 1, 1]);
  await ordered.clock.advance(50);
  assert.equal(ordered.answered.length, 0);
  await ordered.clock.advance(100);
  assert.deepEqual(ordered.answered.map(({ id, answeredMs }) => [id, answeredMs]), [
    ["0", 100],
    ["1", 100],
    ["2", 100],
  ]);
  const free = createBatcher({}, options);
  free.sendAll([1, 1, 1]);
  await free.clock.advance(150);
  assert.deepEqual(free.answered.map(({ id }) => id), ["1", "2", "0"]);
});

Deno.test("DynamicBatcher holds its first batch until so many requests came", async () => {
  const fixture = createBatcher({}, { delaySchedulerCount: 4 });
  fixture.sendAll([1, 1, 1]);
  await fixture.clock.advance(60_000);
  assert.deepEqual(fixture.batchRows, []);
  fixture.send();
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [4]);
  fixture.send();
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [4, 1]);
});

Deno.test("DynamicBatcher finishes waiting requests at its end without waiting for company", async () => {
  const fixture = createBatcher({ maxQueueDelayMicroseconds: 60n * SECOND_US });
  const sent = fixture.send();
  await fixture.clock.advance(10);
  let isStopped = false;
  fixture.scheduler.stop().then(() => isStopped = true);
  await fixture.clock.advance(0);
  assert.equal(sent.answeredMs, 10);
  assert.equal(isStopped, true);
});

Deno.test("DynamicBatcher needs no timer without delay and timeout", async () => {
  const fixture = createBatcher({}, { executeMs: 10 });
  fixture.sendAll([8, 8, 8]);
  await fixture.clock.settle();
  // The only timer is the execution's own.
  assert.equal(fixture.clock.timerCount, 1);
  await fixture.clock.advance(100);
});

Deno.test("DynamicBatcher.stop() leaves no timer of a timeout that nobody waits for", async () => {
  const policy = { timeoutAction: REJECT, defaultTimeoutMicroseconds: 3600n * SECOND_US };
  const fixture = createBatcher({ defaultQueuePolicy: policy }, { executeMs: 10 });
  fixture.sendAll([8, 8]);
  await fixture.clock.advance(100);
  assert.equal(fixture.clock.timerCount, 1);
  await fixture.scheduler.stop();
  assert.equal(fixture.clock.timerCount, 0);
});
