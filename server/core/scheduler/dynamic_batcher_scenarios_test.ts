import assert from "node:assert/strict";
import { DataType, ModelQueuePolicy_TimeoutAction } from "../../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../../proto/status.ts";
import { SchedulerFixture, type SchedulerFixtureOptions, tensor } from "./scheduler_fixture.ts";

type Batching = NonNullable<SchedulerFixtureOptions["batching"]>;

function createBatcher(
  batching: Batching,
  options: SchedulerFixtureOptions = {},
): SchedulerFixture {
  return new SchedulerFixture({ ...options, batching });
}

const SECOND_US = 1_000_000n;
const { REJECT, DELAY } = ModelQueuePolicy_TimeoutAction;

Deno.test("D21: without a delay, what waits goes together when the instance is free", async () => {
  const fixture = createBatcher({}, { executeMs: 200 });
  for (let index = 0; index < 5; index++) {
    fixture.send();
    await fixture.clock.advance(4);
  }
  await fixture.clock.advance(1000);
  assert.deepEqual(fixture.batchRows, [1, 4]);
});

Deno.test("D22 (i): what would exceed the largest preferred size waits, what is before goes", async () => {
  const fixture = createBatcher(
    { preferredBatchSize: [2, 6], maxQueueDelayMicroseconds: 10n * SECOND_US },
    { delaySchedulerCount: 2 },
  );
  fixture.sendAll([3, 4]);
  await fixture.clock.advance(1);
  assert.deepEqual(fixture.batchRows, [3]);
  await fixture.clock.advance(10_000);
  assert.deepEqual(fixture.batchRows, [3, 4]);
  assert.equal(fixture.executions[1]!.atMs, 10_000);
});

Deno.test("D22 (ii): the largest preferred total that is reached goes, the rest after the delay", async () => {
  const fixture = createBatcher(
    { preferredBatchSize: [2, 6], maxQueueDelayMicroseconds: 10n * SECOND_US },
    { delaySchedulerCount: 5 },
  );
  fixture.sendAll([1, 1, 1, 1, 1]);
  await fixture.clock.advance(9_999);
  assert.deepEqual(fixture.batchRows, [2, 2]);
  await fixture.clock.advance(1);
  assert.deepEqual(fixture.batchRows, [2, 2, 1]);
});

Deno.test("D22 (iii): once the delay has passed, everything that fits goes together", async () => {
  const fixture = createBatcher(
    { preferredBatchSize: [2, 6], maxQueueDelayMicroseconds: 10n * SECOND_US },
    { delaySchedulerCount: 3 },
  );
  fixture.sendAll([3, 4]);
  await fixture.clock.advance(11_000);
  assert.deepEqual(fixture.batchRows, []);
  fixture.send({ rows: 1 });
  await fixture.clock.advance(1);
  assert.deepEqual(fixture.batchRows, [8]);
});

Deno.test("D23: a timeout fires on time while the instance is busy", async () => {
  const fixture = createBatcher(
    { defaultQueuePolicy: { timeoutAction: REJECT, defaultTimeoutMicroseconds: 10n * SECOND_US } },
    { executeMs: 90_000 },
  );
  const first = fixture.send();
  await fixture.clock.advance(100);
  const second = fixture.send();
  await fixture.clock.advance(100_000);
  assert.equal(second.answeredMs, 10_100);
  assert.equal(second.error?.code, "UNAVAILABLE");
  assert.equal(second.error?.message, "Request timeout expired");
  assert.equal(first.answeredMs, 90_000);
  assert.equal(first.error, undefined);
});

for (const action of [REJECT, DELAY]) {
  const name = ModelQueuePolicy_TimeoutAction[action];
  Deno.test(`D24: a preferred size goes at once, a lone request is subject to ${name}`, async () => {
    const fixture = createBatcher({
      preferredBatchSize: [4, 8],
      maxQueueDelayMicroseconds: 10n * SECOND_US,
      defaultQueuePolicy: { timeoutAction: action, defaultTimeoutMicroseconds: 100_000n },
    });
    const alone = fixture.send();
    await fixture.clock.advance(200);
    const pair = fixture.sendAll([2, 2]);
    await fixture.clock.advance(99);
    assert.deepEqual(fixture.batchRows, [4]);
    assert.ok(pair.every(({ answeredMs }) => answeredMs === 200));
    await fixture.clock.advance(15_000);
    if (action === REJECT) {
      assert.equal(alone.answeredMs, 100);
      assert.equal(alone.error?.message, "Request timeout expired");
      assert.equal(fixture.statistics.snapshot().failures.REJECTED, 1);
    } else {
      assert.equal(alone.answeredMs, 10_000);
      assert.equal(alone.error, undefined);
    }
  });
}

Deno.test("D25: requests of different shapes do not share a batch", async () => {
  const input = { name: "X", dataType: DataType.TYPE_FP32, dims: [-1n] };
  const fixture = createBatcher({ maxQueueDelayMicroseconds: 50_000n }, {
    inputs: [input],
  });
  fixture.send({ inputs: [tensor("X", [1, 3])] });
  fixture.send({ inputs: [tensor("X", [1, 5])] });
  await fixture.clock.advance(1000);
  assert.deepEqual(fixture.batchRows, [1, 1]);
  const ragged = createBatcher({ maxQueueDelayMicroseconds: 50_000n }, {
    inputs: [{ ...input, allowRaggedBatch: true }],
  });
  ragged.send({ inputs: [tensor("X", [1, 3])] });
  ragged.send({ inputs: [tensor("X", [1, 5])] });
  await ragged.clock.advance(1000);
  assert.deepEqual(ragged.batchRows, [2]);
});

Deno.test("D26: one failing request of a batch fails alone and is counted", async () => {
  const fixture = createBatcher({ preferredBatchSize: [2], maxQueueDelayMicroseconds: SECOND_US }, {
    outcome: ({ id }) =>
      id === "bad" ? { error: new ServerError("INTERNAL", "no") } : { outputs: [] },
  });
  const bad = fixture.send({ id: "bad" });
  const good = fixture.send({ id: "good" });
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [2]);
  assert.equal(bad.error?.message, "no");
  assert.equal(good.error, undefined);
  const { failures, success } = fixture.statistics.snapshot();
  assert.equal(failures.BACKEND, 1);
  assert.equal(success, 1);
  assert.equal(fixture.statistics.toMessage().inferenceStats?.fail?.count, 1n);
});
