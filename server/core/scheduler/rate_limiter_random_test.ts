import assert from "node:assert/strict";
import {
  type RatedGroup,
  type RatedModel,
  type RatedModelOptions,
  RateLimiterFixture,
} from "./rate_limiter_fixture.ts";
import type { RateLimitResource } from "./resource_table.ts";

const OPERATION_COUNT = 4000;
const RESOURCES = ["A", "B", "C"];
const DEVICE_COUNT = 2;

/** Numbers 0 ≤ n < 1 that are the same in every run. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

type Random = () => number;

function upTo(random: Random, limit: number): number {
  return Math.floor(random() * limit);
}

/** A group that asks for some of the resources; "C" is global. */
function randomGroup(random: Random): RatedGroup {
  const resources = RESOURCES.filter(() => random() < 0.5)
    .map((name) => ({ name, count: upTo(random, 4), global: name === "C" }));
  return {
    count: 1 + upTo(random, 2),
    priority: upTo(random, 4),
    resources,
    devices: random() < 0.5 ? [upTo(random, DEVICE_COUNT)] : [0, 1],
  };
}

function loadRandom(fixture: RateLimiterFixture, name: string, random: Random): RatedModel {
  const groups = Array.from({ length: 1 + upTo(random, 2) }, () => randomGroup(random));
  return fixture.load(name, {
    groups,
    executeMs: Array.from({ length: 50 }, () => upTo(random, 20)),
    failure: () => random() < 0.02 ? new Error("Seeded") : undefined,
    ...randomScheduling(random),
  });
}

function randomScheduling(random: Random): Partial<RatedModelOptions> {
  const maxQueueDelayMicroseconds = random() < 0.5 ? 3000n : 0n;
  const dice = random();
  if (dice < 0.3) return {};
  if (dice < 0.5) {
    const strategyChoice = random() < 0.5
      ? {
        case: "direct" as const,
        value: { maxQueueDelayMicroseconds, minimumSlotUtilization: random() },
      }
      : {
        case: "oldest" as const,
        value: { maxQueueDelayMicroseconds, maxCandidateSequences: 3, preferredBatchSize: [2] },
      };
    return { maxBatchSize: 2, sequences: { strategyChoice } };
  }
  return {
    maxBatchSize: 4,
    batching: {
      maxQueueDelayMicroseconds,
      priorityLevels: 2n,
      defaultPriorityLevel: 2n,
      defaultQueuePolicy: {
        defaultTimeoutMicroseconds: random() < 0.5 ? 40_000n : 0n,
        maxQueueSize: random() < 0.3 ? 10 : 0,
      },
    },
  };
}

const LIMITS: readonly (readonly RateLimitResource[])[] = [
  [],
  RESOURCES.map((name) => ({ name, count: 3 })),
  [...RESOURCES.map((name) => ({ name, count: 4 })), { name: "A", count: 6, deviceId: 1 }],
];

for (let seed = 1; seed <= 12; seed++) {
  const name = `RateLimiter answers everybody once and lends no more than there is: seed ${seed}`;
  Deno.test(name, async () => {
    const random = seededRandom(seed * 7919);
    const fixture = new RateLimiterFixture(LIMITS[seed % LIMITS.length]!);
    const loaded: RatedModel[] = [];
    const all: RatedModel[] = [];
    const unloads: Promise<void>[] = [];
    const load = () => {
      const model = loadRandom(fixture, `m${all.length}`, random);
      loaded.push(model);
      all.push(model);
    };
    for (let index = 0; index < 5; index++) load();
    const controllers: AbortController[] = [];
    for (let step = 0; step < OPERATION_COUNT; step++) {
      const dice = random();
      const model = loaded[upTo(random, loaded.length)]!;
      if (dice < 0.8) {
        const controller = random() < 0.3 ? new AbortController() : undefined;
        if (controller !== undefined) controllers.push(controller);
        model.send({
          priority: upTo(random, 3),
          sequenceId: BigInt(1 + upTo(random, 6)),
          sequenceStart: random() < 0.4,
          sequenceEnd: random() < 0.3,
          ...(controller === undefined ? {} : { signal: controller.signal }),
        });
      } else if (dice < 0.85) controllers[controllers.length - 1 - upTo(random, 20)]?.abort();
      else if (dice < 0.99) await fixture.clock.advance(random() * 30);
      else {
        loaded.splice(loaded.indexOf(model), 1);
        unloads.push(fixture.unload(model));
        load();
      }
    }
    await fixture.clock.advance(3_600_000);
    await Promise.all(unloads);
    for (const { answers, scheduler, executions } of all) {
      assert.ok(answers.every(({ answerCount }) => answerCount === 1), "each is answered once");
      assert.equal(scheduler.inflightCount, 0);
      // Places of a batch that have nothing to do run without an id.
      const executed = executions.flatMap(({ ids }) => ids).filter((id) => id !== "");
      assert.equal(new Set(executed).size, executed.length, "nobody runs twice");
    }
    const executedCount = all.reduce((sum, { executions }) => sum + executions.length, 0);
    assert.ok(executedCount > 1000, `${executedCount} executions`);
    fixture.checkIdle();
    assert.equal(fixture.clock.timerCount, 0);
    await Promise.all(loaded.map((model) => fixture.unload(model)));
    assert.deepEqual(fixture.limiter.resources(), []);
  });
}

for (let seed = 1; seed <= 8; seed++) {
  Deno.test(`RateLimiter shares turns by priority under contention: seed ${seed}`, async () => {
    const random = seededRandom(seed * 104_729);
    const fixture = new RateLimiterFixture();
    const models = Array.from({ length: 2 + upTo(random, 4) }, (_, index) => {
      const priority = 1 + upTo(random, 5);
      // All need all there is of one resource at least, so that they run one after the other.
      const resources = [{ name: "A", count: 4 }, { name: "B", count: upTo(random, 5) }];
      const options = { groups: [{ priority, resources }], executeMs: 1 + upTo(random, 9) };
      return { priority, model: fixture.load(`m${index}`, options) };
    });
    for (const { model } of models) model.sendMany(3000);
    await fixture.clock.advance(4000);
    // By time, executions × priority are the same for all, but for one turn of the least favoured.
    const scaled = models.map(({ priority, model }) => model.executions.length * priority);
    const slowest = Math.max(...models.map(({ priority }) => priority));
    assert.ok(Math.max(...scaled) - Math.min(...scaled) <= slowest + 1, scaled.join());
    assert.ok(Math.min(...scaled) > 100);
  });
}
