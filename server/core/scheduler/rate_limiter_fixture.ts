import assert from "node:assert/strict";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ExecuteReport, ExecuteRequest } from "../../../backends/backend.ts";
import {
  ModelConfigSchema,
  ModelDynamicBatchingSchema,
  ModelSequenceBatchingSchema,
} from "../../../proto/gen/model_config_pb.ts";
import type { ServerError } from "../../../proto/status.ts";
import { FakeClock } from "../fake_clock.ts";
import { VersionStatistics } from "../statistics.ts";
import { createTensorRules } from "../tensor_rules.ts";
import { createScheduler } from "./create_scheduler.ts";
import { type FakeExecution, FakeInstance, type FakeInstanceOptions } from "./fake_instance.ts";
import { InstancePool } from "./instance_pool.ts";
import { Job } from "./job.ts";
import { type ModelRates, type PlannedInstance, RateLimiter } from "./rate_limiter.ts";
import type { RateLimitResource } from "./resource_table.ts";
import type { Scheduler } from "./scheduler.ts";

/** An instance group of a rated model. */
export interface RatedGroup {
  readonly resources?: readonly {
    readonly name: string;
    readonly count: number;
    readonly global?: boolean;
  }[];
  readonly priority?: number;
  /** 1 when absent. */
  readonly count?: number;
  /** `[0]` when absent. */
  readonly devices?: readonly number[];
}

/** A model of a test of the rate limiter. */
export interface RatedModelOptions {
  readonly groups: readonly RatedGroup[];
  readonly batching?: MessageInitShape<typeof ModelDynamicBatchingSchema>;
  readonly sequences?: MessageInitShape<typeof ModelSequenceBatchingSchema>;
  readonly maxBatchSize?: number;
  readonly executeMs?: number | readonly number[];
  readonly failure?: FakeInstanceOptions["failure"];
}

/** A request of a test. */
export interface RatedRequest {
  readonly priority?: number;
  readonly timeoutUs?: number;
  readonly signal?: AbortSignal;
  readonly sequenceId?: bigint;
  readonly sequenceStart?: boolean;
  readonly sequenceEnd?: boolean;
}

/** What became of a request. */
export interface RatedAnswer {
  answerCount: number;
  answeredMs: number | undefined;
  error: ServerError | undefined;
}

/** Models that share one rate limiter, in virtual time. At every step nobody may hold more than there is. */
export class RateLimiterFixture {
  readonly clock = new FakeClock();
  readonly limiter: RateLimiter;
  readonly #limits: readonly RateLimitResource[];
  /** Who runs what now, independent of the limiter's own book. */
  readonly #running = new Set<HeldResources>();
  readonly #models = new Set<RatedModel>();
  readonly #faults: string[] = [];

  constructor(limits: readonly RateLimitResource[] = []) {
    this.#limits = limits;
    this.limiter = new RateLimiter(limits);
  }

  /** Loads a model. @throws ServerError when its resources cannot be had. */
  load(name: string, options: RatedModelOptions): RatedModel {
    const model = new RatedModel(name, this, options);
    this.#models.add(model);
    return model;
  }

  /** Stops a model; its instances are gone when that has settled. */
  async unload(model: RatedModel): Promise<void> {
    await model.scheduler.stop();
    model.rates[Symbol.dispose]();
    this.#models.delete(model);
  }

  enter(held: HeldResources): void {
    this.#running.add(held);
    for (const [key, count] of held) {
      if (count === 0) continue;
      const used = [...this.#running].reduce((sum, each) => sum + (each.get(key) ?? 0), 0);
      const capacity = this.#capacity(key);
      if (used > capacity) this.#faults.push(`${used} of ${key} are used, there are ${capacity}`);
    }
  }

  leave(held: HeldResources): void {
    this.#running.delete(held);
  }

  /** Nothing runs and nothing is held, and never more was held than there was. */
  checkIdle(): void {
    assert.deepEqual(this.#faults, []);
    assert.equal(this.#running.size, 0);
    assert.ok(this.limiter.resources().every(({ used }) => used === 0));
  }

  #capacity(key: string): number {
    if (this.#limits.length === 0) {
      const demands = [...this.#models].flatMap(({ demands }) => demands);
      return Math.max(...demands.map((demand) => demand.get(key) ?? 0));
    }
    const [device, name] = key.split("/");
    const counts = this.#limits.filter((limit) =>
      limit.name === name &&
      (device === "global" || limit.deviceId === undefined || `${limit.deviceId}` === device)
    );
    return Math.max(0, ...counts.map(({ count }) => count));
  }
}

/** `device/name` → count. */
type HeldResources = ReadonlyMap<string, number>;

/** A model under the rate limiter. */
export class RatedModel {
  readonly name: string;
  readonly clock: FakeClock;
  readonly executions: FakeExecution[] = [];
  readonly answers: RatedAnswer[] = [];
  readonly demands: readonly HeldResources[];
  readonly rates: ModelRates;
  readonly instances: readonly FakeInstance[];
  readonly scheduler: Scheduler;
  readonly statistics: VersionStatistics;
  readonly #fixture: RateLimiterFixture;
  readonly #options: RatedModelOptions;
  #sentCount = 0;

  constructor(name: string, fixture: RateLimiterFixture, options: RatedModelOptions) {
    this.name = name;
    this.#fixture = fixture;
    this.#options = options;
    const clock = this.clock = fixture.clock;
    const config = createConfig(name, options);
    const planned = planInstances(options.groups);
    this.demands = planned.map((plan) => heldResources(options.groups, plan));
    this.rates = fixture.limiter.addModel(config, planned);
    const executeMs = [options.executeMs ?? 10].flat();
    const instances = this.instances = planned.map((plan, index) => {
      const { executions } = this;
      const instance = new CheckedInstance(
        `${name}_${plan.groupIndex}_${index}`,
        { clock, executions, executeMs, failure: options.failure ?? (() => undefined) },
        fixture,
        this.demands[index]!,
      );
      this.rates.add(instance, plan);
      return instance;
    });
    const statistics = { model: name, version: 1, tags: {}, clock, statistics: {} };
    this.statistics = new VersionStatistics({ ...statistics });
    const poolParts = { clock, observer: this.statistics, rates: this.rates };
    this.scheduler = createScheduler(config, {
      instances,
      createPool: (pooled) => new InstancePool({ instances: pooled, ...poolParts }),
      clock,
      observer: this.statistics,
      rules: createTensorRules(config),
      delaySchedulerCount: 0,
    });
  }

  /** Executions so far by instance group. */
  executionCounts(groupCount: number): number[] {
    return Array.from(
      { length: groupCount },
      (_, group) =>
        this.executions.filter(({ instance }) => instance.startsWith(`${this.name}_${group}_`))
          .length,
    );
  }

  /** A further instance of a group, known to the limiter and not yet in service. */
  createInstance(plan: PlannedInstance): CheckedInstance {
    const { clock, executions } = this;
    const held = heldResources(this.#options.groups, plan);
    const name = `${this.name}_${plan.groupIndex}_new`;
    const options = { clock, executions, executeMs: [this.#options.executeMs ?? 10].flat() };
    const instance = new CheckedInstance(name, options, this.#fixture, held);
    this.rates.plan(createConfig(this.name, this.#options), [plan]);
    this.rates.add(instance, plan);
    return instance;
  }

  send(options: RatedRequest = {}): RatedAnswer {
    const answer: RatedAnswer = { answerCount: 0, answeredMs: undefined, error: undefined };
    this.answers.push(answer);
    const finish = (error: ServerError | undefined) => {
      answer.answerCount++;
      answer.answeredMs = this.clock.now();
      answer.error = error;
    };
    const job = new Job({
      id: `${this.name}${this.#sentCount++}`,
      correlationId: options.sequenceId ?? 0n,
      sequenceStart: options.sequenceStart ?? false,
      sequenceEnd: options.sequenceEnd ?? false,
      batchSize: 1,
      inputs: [],
      outputs: ["Y"],
      parameters: {},
      signal: options.signal,
      priority: options.priority ?? 0,
      timeoutUs: options.timeoutUs ?? 0,
      startMs: this.clock.now(),
      onDone: (_job, outcome) =>
        finish(outcome !== undefined && "error" in outcome ? outcome.error : undefined),
    });
    try {
      this.scheduler.enqueue(job);
    } catch (error) {
      finish(error as ServerError);
    }
    return answer;
  }

  sendMany(count: number): RatedAnswer[] {
    return Array.from({ length: count }, () => this.send());
  }
}

/** Tells the fixture when it runs. */
class CheckedInstance extends FakeInstance {
  readonly #fixture: RateLimiterFixture;
  readonly #held: HeldResources;

  constructor(
    name: string,
    options: FakeInstanceOptions,
    fixture: RateLimiterFixture,
    held: HeldResources,
  ) {
    super(name, options);
    this.#fixture = fixture;
    // A map of its own: two instances of a group hold as much each.
    this.#held = new Map(held);
  }

  override async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    this.#fixture.enter(this.#held);
    try {
      return await super.execute(requests);
    } finally {
      this.#fixture.leave(this.#held);
    }
  }
}

function createConfig(
  name: string,
  { groups, batching, sequences, maxBatchSize = 1 }: RatedModelOptions,
) {
  return create(ModelConfigSchema, {
    name,
    maxBatchSize,
    instanceGroup: groups.map(({ resources = [], priority = 0 }) => ({
      rateLimiter: { resources: resources.map((resource) => ({ ...resource })), priority },
    })),
    ...(sequences === undefined ? {} : {
      schedulingChoice: {
        case: "sequenceBatching" as const,
        value: create(ModelSequenceBatchingSchema, {
          maxSequenceIdleMicroseconds: 1_000_000n,
          ...sequences,
        }),
      },
    }),
    ...(batching === undefined ? {} : {
      schedulingChoice: {
        case: "dynamicBatching" as const,
        value: create(ModelDynamicBatchingSchema, {
          preferredBatchSize: [maxBatchSize],
          ...batching,
        }),
      },
    }),
  });
}

function planInstances(groups: readonly RatedGroup[]): PlannedInstance[] {
  return groups.flatMap(({ count = 1, devices = [0] }, groupIndex) =>
    Array.from({ length: count }).flatMap(() =>
      devices.map((deviceId) => ({ deviceId, groupIndex }))
    )
  );
}

function heldResources(groups: readonly RatedGroup[], plan: PlannedInstance): HeldResources {
  const held = new Map<string, number>();
  for (const { name, count, global } of groups[plan.groupIndex]?.resources ?? []) {
    held.set(`${global ? "global" : plan.deviceId}/${name}`, count);
  }
  return held;
}
