import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import type { ExecuteRequest } from "../../../backends/backend.ts";
import {
  ModelConfigSchema,
  ModelDynamicBatchingSchema,
} from "../../../proto/gen/model_config_pb.ts";
import { FakeClock } from "../fake_clock.ts";
import { VersionStatistics } from "../statistics.ts";
import { createTensorRules } from "../tensor_rules.ts";
import { createBatchRules } from "./batch_rules.ts";
import { DefaultScheduler } from "./default_scheduler.ts";
import { DynamicBatcher } from "./dynamic_batcher.ts";
import { type FakeExecution, FakeInstance, type FakeInstanceOptions } from "./fake_instance.ts";
import { InstancePool } from "./instance_pool.ts";
import { Job, type JobOptions } from "./job.ts";
import { RateLimiterFixture } from "./rate_limiter_fixture.ts";
import type { InstanceScheduler } from "./scheduler.ts";

type Kind = "DefaultScheduler" | "DynamicBatcher";
const KINDS: readonly Kind[] = ["DefaultScheduler", "DynamicBatcher"];

function createJob(id: string, clock: FakeClock, onDone: JobOptions["onDone"]): Job {
  return new Job({
    id,
    correlationId: 0n,
    batchSize: 1,
    inputs: [],
    outputs: ["Y"],
    parameters: {},
    signal: undefined,
    priority: 0,
    timeoutUs: 0,
    startMs: clock.now(),
    onDone,
  });
}

function createObserver(clock: FakeClock): VersionStatistics {
  return new VersionStatistics({ model: "m", version: 1, tags: {}, clock, statistics: {} });
}

/** A model whose instances come and go. */
class Fixture {
  readonly clock = new FakeClock();
  readonly executions: FakeExecution[] = [];
  readonly answered: string[] = [];
  readonly scheduler: InstanceScheduler;
  readonly instances: FakeInstance[] = [];
  readonly #options: Partial<FakeInstanceOptions>;
  #sentCount = 0;

  constructor(kind: Kind, count: number, options: Partial<FakeInstanceOptions> = {}) {
    const { clock } = this;
    this.#options = options;
    for (let index = 0; index < count; index++) this.createInstance();
    const observer = createObserver(clock);
    const pool = new InstancePool({ instances: [...this.instances], clock, observer });
    const config = create(ModelConfigSchema, { name: "m", maxBatchSize: 1 });
    const batching = create(ModelDynamicBatchingSchema, { preferredBatchSize: [1] });
    this.scheduler = kind === "DefaultScheduler"
      ? new DefaultScheduler({ pool, clock, observer })
      : new DynamicBatcher(createBatchRules(batching, 1), {
        pool,
        clock,
        observer,
        rules: createTensorRules(config),
        delaySchedulerCount: 0,
      });
  }

  createInstance(): FakeInstance {
    const { clock, executions } = this;
    const name = `m_${this.instances.length}`;
    const options = { clock, executions, executeMs: [10], ...this.#options };
    const instance = new FakeInstance(name, options);
    this.instances.push(instance);
    return instance;
  }

  send(count: number): void {
    for (let index = 0; index < count; index++) {
      const id = String(this.#sentCount++);
      this.scheduler.enqueue(createJob(id, this.clock, () => void this.answered.push(id)));
    }
  }

  /** Takes an instance out; the result says whether that has settled. */
  remove(instance: FakeInstance): { isLeft: boolean } {
    const removal = { isLeft: false };
    this.scheduler.removeInstance(instance).then(() => removal.isLeft = true);
    return removal;
  }
}

for (const kind of KINDS) {
  Deno.test(`${kind}.addInstance() lets what waits run at once`, async () => {
    const fixture = new Fixture(kind, 1);
    fixture.send(3);
    await fixture.clock.advance(2);
    assert.equal(fixture.executions.length, 1);
    const instance = fixture.createInstance();
    fixture.scheduler.addInstance(instance);
    await fixture.clock.advance(0);
    assert.deepEqual(fixture.executions.map(({ atMs }) => atMs), [0, 2]);
    assert.throws(() => fixture.scheduler.addInstance(instance), TypeError);
    await fixture.clock.advance(100);
    assert.equal(fixture.answered.length, 3);
  });

  Deno.test(`${kind}.removeInstance() gives the instance no more work, and waits for what it runs`, async () => {
    const fixture = new Fixture(kind, 2);
    const [first, second] = fixture.instances as [FakeInstance, FakeInstance];
    fixture.send(6);
    await fixture.clock.advance(2);
    const removal = fixture.remove(second);
    await fixture.clock.advance(7);
    assert.equal(removal.isLeft, false);
    await fixture.clock.advance(1);
    assert.equal(removal.isLeft, true);
    await second[Symbol.asyncDispose]();
    await fixture.clock.advance(100);
    assert.equal(fixture.answered.length, 6);
    const count = fixture.executions.filter(({ instance }) => instance === "m_1").length;
    assert.equal(count, 1);
    assert.throws(() => fixture.scheduler.removeInstance(first), RangeError);
    assert.throws(() => fixture.scheduler.removeInstance(second), TypeError);
  });

  Deno.test(`${kind}.removeInstance() lets an idle instance go at once`, async () => {
    const fixture = new Fixture(kind, 2);
    const removal = fixture.remove(fixture.instances[0]!);
    await fixture.clock.advance(0);
    assert.equal(removal.isLeft, true);
    fixture.send(2);
    await fixture.clock.advance(100);
    assert.deepEqual(fixture.executions.map(({ instance }) => instance), ["m_1", "m_1"]);
  });

  Deno.test(`${kind} goes on while instances are replaced, without an answer lost`, async () => {
    const fixture = new Fixture(kind, 2);
    for (let round = 0; round < 50; round++) {
      fixture.send(1 + round % 4);
      await fixture.clock.advance(round % 13);
      fixture.scheduler.addInstance(fixture.createInstance());
      const oldest = fixture.instances[round]!;
      fixture.scheduler.removeInstance(oldest).then(() => oldest[Symbol.asyncDispose]());
    }
    await fixture.clock.advance(1000);
    assert.equal(fixture.answered.length, new Set(fixture.answered).size);
    assert.equal(fixture.answered.length, 123);
    assert.equal(fixture.scheduler.inflightCount, 0);
    assert.equal(fixture.instances.filter(({ isDisposed }) => isDisposed).length, 50);
    await fixture.scheduler.stop();
  });

  Deno.test(`${kind}.removeInstance() waits for responses that come after the execution`, async () => {
    const streams: ExecuteRequest[] = [];
    const fixture = new Fixture(kind, 2, {
      outcome: (request) => {
        streams.push(request);
        return { streamed: true };
      },
    });
    fixture.send(2);
    await fixture.clock.advance(20);
    const removals = [fixture.remove(fixture.instances[0]!)];
    await fixture.clock.advance(20);
    assert.equal(removals[0]!.isLeft, false);
    const own = fixture.executions.findIndex(({ instance }) => instance === "m_0");
    const [mine, other] = own === 0 ? streams : [...streams].reverse();
    other!.send({ outputs: [] }, true);
    await fixture.clock.advance(0);
    assert.equal(removals[0]!.isLeft, false, "another instance's stream has ended");
    mine!.send({ outputs: [] }, false);
    await fixture.clock.advance(0);
    assert.equal(removals[0]!.isLeft, false);
    mine!.send(undefined, true);
    await fixture.clock.advance(0);
    assert.equal(removals[0]!.isLeft, true);
    assert.equal(fixture.answered.length, 2);
  });
}

for (const batching of [undefined, {}]) {
  const kind = batching === undefined ? "DefaultScheduler" : "DynamicBatcher";
  Deno.test(`${kind} adds and removes instances under the rate limiter`, async () => {
    const fixture = new RateLimiterFixture([{ name: "R", count: 2 }]);
    const model = fixture.load("m", {
      groups: [{ resources: [{ name: "R", count: 1 }] }],
      ...(batching === undefined ? {} : { batching }),
    });
    const scheduler = model.scheduler as InstanceScheduler;
    model.sendMany(4);
    await fixture.clock.advance(1);
    assert.equal(model.executions.length, 1);
    const added = model.createInstance({ deviceId: 0, groupIndex: 0 });
    scheduler.addInstance(added);
    await fixture.clock.advance(0);
    assert.equal(model.executions.length, 2, "there is enough for both");
    const [first] = model.instances;
    const removed = scheduler.removeInstance(first!);
    await fixture.clock.advance(100);
    await removed;
    assert.throws(() => model.rates.of(first!), TypeError);
    model.sendMany(3);
    await fixture.clock.advance(100);
    assert.ok(model.answers.every(({ answerCount, error }) => answerCount === 1 && !error));
    assert.equal(model.executionCounts(1)[0], 7);
    fixture.checkIdle();
  });

  Deno.test(`${kind} removes an instance that waits for its resources`, async () => {
    const fixture = new RateLimiterFixture([{ name: "R", count: 1 }]);
    const groups = [{ resources: [{ name: "R", count: 1 }] }];
    const holder = fixture.load("holder", { groups, executeMs: 100 });
    const model = fixture.load("m", {
      groups: [...groups, {}],
      ...(batching === undefined ? {} : { batching }),
      executeMs: 300,
    });
    holder.send();
    await fixture.clock.advance(1);
    model.sendMany(2);
    await fixture.clock.advance(10);
    assert.deepEqual(model.executionCounts(2), [0, 1]);
    await (model.scheduler as InstanceScheduler).removeInstance(model.instances[0]!);
    await fixture.clock.advance(1000);
    assert.deepEqual(model.executionCounts(2), [0, 2]);
    fixture.checkIdle();
  });
}

Deno.test("ModelRates forgets the plans of instances that could not be made", () => {
  const fixture = new RateLimiterFixture();
  const groups = [{ resources: [{ name: "R", count: 1 }] }];
  const model = fixture.load("m", { groups });
  const config = create(ModelConfigSchema, {
    name: "m",
    instanceGroup: [{ rateLimiter: { resources: [{ name: "R", count: 5 }] } }],
  });
  const planned = [{ deviceId: 0, groupIndex: 0 }];
  fixture.limiter.check(config, planned);
  model.rates.plan(config, planned);
  assert.equal(fixture.limiter.resources()[0]?.capacity, 5);
  model.rates.cancelPlans();
  assert.equal(fixture.limiter.resources()[0]?.capacity, 1);
});

Deno.test("InstancePool.run() answers and goes on when an outcome cannot be refined", async () => {
  const clock = new FakeClock();
  const observer = createObserver(clock);
  const instance = new FakeInstance("m_0", { clock, executions: [], executeMs: [10] });
  const pool = new InstancePool({ instances: [instance], clock, observer });
  pool.refine = () => {
    throw new RangeError("Array buffer allocation failed");
  };
  pool.onFinished = (jobs) => jobs.forEach((job) => job.settle(job.outcome!, () => {}));
  const codes: unknown[] = [];
  const job = createJob("a", clock, (_job, response) => {
    codes.push(response !== undefined && "error" in response && response.error.code);
  });
  observer.accepted(job);
  pool.run([job]);
  await clock.advance(10);
  assert.deepEqual(codes, ["INTERNAL"]);
  assert.equal(pool.idleCount, 1);
});
