import assert from "node:assert/strict";
import type { BatchRequest } from "../batch_strategy_api.ts";
import type { LoadedBatchStrategy } from "./batch_strategy.ts";
import { SchedulerFixture, type SchedulerFixtureOptions } from "./scheduler_fixture.ts";

const OPERATION_COUNT = 10_000;
const MAX_PARITY_SUM = 7;

/** Numbers 0 ≤ n < 1 that are the same in every run. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

interface Batch {
  weight: number;
  readonly asked: Set<string>;
}

/** Weighs requests by their ids; sometimes throws. Checks how it is called. */
class WeighingStrategy implements LoadedBatchStrategy {
  openCount = 0;
  failureCount = 0;
  readonly finished: string[][] = [];

  start(): unknown {
    this.openCount++;
    assert.equal(this.openCount, 1, "one batch is formed at a time");
    return { weight: 0, asked: new Set() };
  }

  includeRequest({ id }: BatchRequest, given: unknown): unknown {
    const batch = given as Batch;
    assert.ok(!batch.asked.has(id), "each is asked about once per batch");
    batch.asked.add(id);
    if (Number(id) % 97 === 0) throw new Error("Seeded failure");
    if (batch.weight + weightOf(id) > MAX_PARITY_SUM) return false;
    batch.weight += weightOf(id);
    return true;
  }

  finish(given: unknown, requests: readonly BatchRequest[]): unknown {
    this.openCount--;
    const { asked } = given as Batch;
    assert.ok(requests.every(({ id }) => asked.has(id)));
    if (requests.length > 0) this.finished.push(requests.map(({ id }) => id));
    return undefined;
  }

  tellFailure(_call: string, reason: unknown): void {
    assert.equal((reason as Error).message, "Seeded failure");
    this.failureCount++;
  }

  [Symbol.dispose](): void {}
}

/** Some are too heavy for any batch. */
function weightOf(id: string): number {
  return Number(id) % 9;
}

const CONFIGURATIONS: Readonly<Record<string, SchedulerFixtureOptions>> = {
  plain: { batching: {}, executeMs: [1, 7, 3, 20] },
  "delay and preferred sizes": {
    batching: { preferredBatchSize: [3, 6], maxQueueDelayMicroseconds: 5000n },
    instanceCount: 2,
    executeMs: 4,
  },
  "priorities and timeouts": {
    batching: {
      priorityLevels: 3n,
      defaultPriorityLevel: 2n,
      maxQueueDelayMicroseconds: 9000n,
      defaultQueuePolicy: { defaultTimeoutMicroseconds: 30_000n, maxQueueSize: 20 },
    },
    executeMs: 3,
  },
};

for (const [name, options] of Object.entries(CONFIGURATIONS)) {
  Deno.test(`a custom strategy is called as promised under random load: ${name}`, async () => {
    const random = seededRandom(name.length * 7919);
    const strategy = new WeighingStrategy();
    const fixture = new SchedulerFixture({ ...options, batchStrategy: strategy });
    const controllers: AbortController[] = [];
    for (let step = 0; step < OPERATION_COUNT; step++) {
      const dice = random();
      if (dice < 0.7) {
        const controller = new AbortController();
        controllers.push(controller);
        const priority = Math.floor(random() * 4);
        fixture.send({ priority, signal: controller.signal, rows: 1 + Math.floor(random() * 2) });
      } else if (dice < 0.8) controllers.at(-Math.ceil(random() * 20))?.abort();
      else await fixture.clock.advance(random() * 12);
    }
    await fixture.clock.advance(600_000);
    await fixture.scheduler.stop();
    assert.equal(strategy.openCount, 0);
    assert.equal(fixture.scheduler.inflightCount, 0);
    assert.ok(strategy.failureCount > 20);
    for (const { ids } of fixture.executions) {
      const weight = ids.reduce((sum, id) => sum + weightOf(id), 0);
      assert.ok(ids.length === 1 || weight <= MAX_PARITY_SUM, `${ids} weigh ${weight}`);
    }
    assert.deepEqual(strategy.finished, fixture.executions.map(({ ids }) => ids));
  });
}
