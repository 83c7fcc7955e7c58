import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import type { ExecuteReport, ExecuteRequest, ModelInstance } from "../../../backends/backend.ts";
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
import { InstancePool } from "./instance_pool.ts";
import { Job, type JobOptions } from "./job.ts";

const EXECUTE_MS = 10;

/** Takes two requests behind the one that it runs. */
class AheadInstance implements ModelInstance {
  readonly placement = { name: "m_0", kind: "KIND_CPU", deviceId: 0 } as const;
  readonly given: string[] = [];
  readonly #clock: FakeClock;
  #count = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  takesAhead(): boolean {
    return this.#count < 3;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    this.given.push(...requests.map(({ id }) => id));
    this.#count++;
    const before = this.#last;
    const done = Promise.withResolvers<void>();
    this.#last = done.promise;
    await before;
    const startMs = this.#clock.now();
    await new Promise<void>((resolve) => void this.#clock.setTimer(EXECUTE_MS, resolve));
    this.#count--;
    done.resolve();
    const outcomes = requests.map(() => ({ outputs: [] }));
    return { outcomes, startMs, inputEndMs: startMs, outputStartMs: this.#clock.now() };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

function open({ batches = false, count = 1 } = {}) {
  const clock = new FakeClock();
  const instances = Array.from({ length: count }, () => new AheadInstance(clock));
  const observer = new VersionStatistics({
    model: "m",
    version: 1,
    tags: {},
    clock,
    statistics: {},
  });
  const pool = new InstancePool({ instances, clock, observer });
  const parts = { pool, clock, observer };
  const scheduler = batches
    ? new DynamicBatcher(createBatchRules(create(ModelDynamicBatchingSchema), 1), {
      ...parts,
      rules: createTensorRules(create(ModelConfigSchema)),
      delaySchedulerCount: 0,
    })
    : new DefaultScheduler(parts);
  const answered: string[] = [];
  const send = (id: string, options: Partial<JobOptions> = {}) =>
    scheduler.enqueue(
      new Job({
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
        onDone: (job, response) =>
          answered.push("error" in response! ? `${job.id}: ${response.error.code}` : job.id),
        ...options,
      }),
    );
  return { clock, instances, given: instances[0]!.given, scheduler, observer, answered, send };
}

const IDS = ["a", "b", "c", "d", "e"];

Deno.test("the lone instance of a model gets as much as it takes, in order", async () => {
  const { clock, given, scheduler, observer, answered, send } = open();
  for (const id of IDS) send(id);
  await clock.settle();
  assert.deepEqual(given, ["a", "b", "c"]);
  assert.equal(observer.snapshot().pending, 2);
  await clock.advance(EXECUTE_MS);
  assert.deepEqual([given, answered], [["a", "b", "c", "d"], ["a"]]);
  await clock.advance(10 * EXECUTE_MS);
  assert.deepEqual(answered, IDS);
  assert.equal(scheduler.inflightCount, 0);
  send("f");
  await clock.advance(EXECUTE_MS);
  assert.equal(answered.at(-1), "f");
});

Deno.test("the time behind others counts as time in the queue", async () => {
  const { clock, observer, send } = open();
  for (const id of IDS.slice(0, 3)) send(id);
  await clock.advance(100);
  const { durationsUs, executionCount } = observer.snapshot();
  assert.equal(executionCount, 3);
  assert.equal(durationsUs.queue, (1 + 2) * EXECUTE_MS * 1000);
  assert.equal(durationsUs.compute_infer, 3 * EXECUTE_MS * 1000);
});

Deno.test("a call of a model waits in the queue, where it can be cancelled, and what comes later behind it", async () => {
  const { clock, given, answered, send } = open();
  const controller = new AbortController();
  send("a");
  send("call", { isCall: true, signal: controller.signal });
  send("b");
  await clock.advance(1);
  assert.deepEqual(given, ["a"]);
  controller.abort();
  assert.deepEqual(answered, ["call: CANCELLED"]);
  await clock.advance(100);
  assert.deepEqual(given, ["a", "b"]);
});

Deno.test("several instances get nothing ahead: another one may be free sooner", async () => {
  const { clock, instances, send } = open({ count: 2 });
  for (const id of IDS) send(id);
  await clock.settle();
  assert.deepEqual(instances.map(({ given }) => given.length), [1, 1]);
});

Deno.test("a batcher gives nothing ahead: waiting requests join", async () => {
  const { clock, given, send } = open({ batches: true });
  for (const id of IDS) send(id);
  await clock.settle();
  assert.deepEqual(given, ["a"]);
});

Deno.test("an instance that leaves first does all that it was given", async () => {
  const { clock, instances, scheduler, answered, send } = open();
  for (const id of IDS.slice(0, 3)) send(id);
  await clock.settle();
  const next = new AheadInstance(clock);
  scheduler.addInstance(next);
  send("d");
  send("e");
  let hasLeft = false;
  void scheduler.removeInstance(instances[0]!).then(() => hasLeft = true);
  await clock.advance(2 * EXECUTE_MS);
  assert.deepEqual([hasLeft, next.given], [false, ["d", "e"]]);
  await clock.advance(EXECUTE_MS);
  assert.equal(hasLeft, true);
  assert.deepEqual([...answered].sort(), IDS);
});
