import assert from "node:assert/strict";
import { ModelQueuePolicy_TimeoutAction } from "../../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../../proto/status.ts";
import { SchedulerFixture, type SchedulerFixtureOptions, type Sent } from "./scheduler_fixture.ts";

const OPERATION_COUNT = 10_000;
const { REJECT, DELAY } = ModelQueuePolicy_TimeoutAction;

/** Numbers 0 ≤ n < 1 that are the same in every run. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

interface Tracked {
  readonly sent: Sent;
  readonly level: number;
  readonly controller: AbortController | undefined;
}

const CONFIGURATIONS: readonly {
  readonly name: string;
  readonly options: SchedulerFixtureOptions;
}[] = [
  { name: "plain", options: { batching: {}, executeMs: [1, 7, 3, 20] } },
  {
    name: "delay and preferred sizes",
    options: {
      batching: { preferredBatchSize: [3, 6], maxQueueDelayMicroseconds: 5000n },
      instanceCount: 2,
      executeMs: 4,
    },
  },
  {
    name: "priorities, limits and timeouts",
    options: {
      batching: {
        priorityLevels: 3n,
        defaultPriorityLevel: 2n,
        maxQueueDelayMicroseconds: 2000n,
        defaultQueuePolicy: {
          timeoutAction: REJECT,
          defaultTimeoutMicroseconds: 30_000n,
          allowTimeoutOverride: true,
          maxQueueSize: 20,
        },
      },
      executeMs: 10,
    },
  },
  {
    name: "delayed after their time",
    options: {
      batching: {
        maxQueueDelayMicroseconds: 2000n,
        defaultQueuePolicy: { timeoutAction: DELAY, defaultTimeoutMicroseconds: 20_000n },
      },
      executeMs: 15,
    },
  },
  {
    name: "preserved order",
    options: { batching: { preserveOrdering: true }, instanceCount: 4, executeMs: 9 },
  },
];

for (const { name, options } of CONFIGURATIONS) {
  Deno.test(`DynamicBatcher answers everybody once under random load: ${name}`, async () => {
    const random = seededRandom(name.length * 7919);
    const fixture = new SchedulerFixture({
      ...options,
      outcome: ({ id, inputs }) =>
        Number(id) % 13 === 0
          ? { error: new ServerError("INTERNAL", "Seeded failure") }
          : { outputs: inputs },
      failure: (requests) => Number(requests[0]!.id) % 101 === 0 ? new Error("Seeded") : undefined,
    });
    const tracked: Tracked[] = [];
    for (let step = 0; step < OPERATION_COUNT; step++) {
      const dice = random();
      if (dice < 0.75) tracked.push(sendRandom(fixture, random));
      else if (dice < 0.85) pick(tracked, random)?.controller?.abort();
      else await fixture.clock.advance(random() * 12);
    }
    await fixture.clock.advance(600_000);
    checkAnswers(fixture, tracked);
    const isReordered = options.batching?.defaultQueuePolicy?.timeoutAction === DELAY;
    if (!isReordered) checkOrder(fixture, tracked, options);
  });
}

function sendRandom(fixture: SchedulerFixture, random: () => number): Tracked {
  const controller = random() < 0.3 ? new AbortController() : undefined;
  const priority = Math.floor(random() * 5);
  const sent = fixture.send({
    rows: 1 + Math.floor(random() * 4),
    priority,
    timeoutUs: random() < 0.3 ? Math.floor(random() * 40_000) : 0,
    ...(controller === undefined ? {} : { signal: controller.signal }),
  });
  return { sent, level: priority >= 1 && priority <= 3 ? priority : 2, controller };
}

function pick(tracked: readonly Tracked[], random: () => number): Tracked | undefined {
  const recent = tracked.slice(-60);
  return recent[Math.floor(random() * recent.length)];
}

function checkAnswers(fixture: SchedulerFixture, tracked: readonly Tracked[]): void {
  assert.ok(tracked.every(({ sent }) => sent.answerCount === 1), "each is answered exactly once");
  assert.equal(fixture.scheduler.inflightCount, 0);
  const { received, success, failures, inflight, pending, executionCount, inferenceCount } = fixture
    .statistics.snapshot();
  const refused = tracked.filter(({ sent }) => sent.error?.message.includes("maximum queue size"));
  const failed = tracked.filter(({ sent }) => sent.error !== undefined).length - refused.length;
  assert.equal(received, tracked.length - refused.length);
  assert.equal(Object.values(failures).reduce((sum, count) => sum + count, 0), failed);
  assert.equal(success, tracked.length - failed - refused.length);
  assert.equal(inflight, 0);
  assert.equal(pending, 0);
  assert.equal(executionCount, fixture.executions.length);
  assert.ok(inferenceCount >= success);
  const executed = fixture.executions.flatMap(({ ids }) => ids);
  assert.equal(new Set(executed).size, executed.length, "nobody runs twice");
}

function checkOrder(
  fixture: SchedulerFixture,
  tracked: readonly Tracked[],
  { batching }: SchedulerFixtureOptions,
): void {
  assert.ok(fixture.batchRows.every((rows) => rows <= 8));
  const hasLevels = batching?.priorityLevels !== undefined;
  const levelOf = new Map(tracked.map(({ sent, level }) => [sent.id, hasLevels ? level : 0]));
  const lastOfLevel = new Map<number, number>();
  for (const { ids } of fixture.executions) {
    let level = 0;
    for (const id of ids) {
      const own = levelOf.get(id)!;
      assert.ok(own >= level, "better levels come first in a batch");
      level = own;
      assert.ok(Number(id) > (lastOfLevel.get(own) ?? -1), "levels are first come, first served");
      lastOfLevel.set(own, Number(id));
    }
  }
  if (!batching?.preserveOrdering) return;
  const executed = new Set(fixture.executions.flatMap(({ ids }) => ids));
  const answered = fixture.answered.map(({ id }) => id).filter((id) => executed.has(id));
  assert.deepEqual(answered, [...answered].sort((a, b) => Number(a) - Number(b)));
}
