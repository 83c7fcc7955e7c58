import type { ModelInstance } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Clock } from "../clock.ts";
import { type BatchComparison, createBatchComparison } from "./batch_compare.ts";
import { type BatchPlan, planBatch } from "./batch_plan.ts";
import type { BatchRules } from "./batch_rules.ts";
import type { SchedulerParts } from "./create_scheduler.ts";
import { FormingBatch } from "./forming_batch.ts";
import type { InstancePool, JobObserver } from "./instance_pool.ts";
import { cancelledError, type FailureReason, type Job } from "./job.ts";
import { ReleaseOrder } from "./release_order.ts";
import { RequestQueue } from "./request_queue.ts";
import { InflightCounter, type InstanceScheduler } from "./scheduler.ts";
import { WakeTimer } from "./wake_timer.ts";

/** What a dynamic batcher works with. */
export type DynamicBatcherParts =
  & Pick<
    SchedulerParts,
    "clock" | "observer" | "rules" | "delaySchedulerCount" | "batchStrategy"
  >
  & { readonly pool: InstancePool };

/**
 * Joins waiting requests to batches (scheduling.md §2). A batch is formed only when an instance is free, so that limits,
 * priorities, timeouts and cancellation act on every request that has not started; forming it in one step of the event
 * loop after the requests came lets those that arrive together run together.
 */
export class DynamicBatcher implements InstanceScheduler {
  readonly #rules: BatchRules;
  readonly #pool: InstancePool;
  readonly #clock: Clock;
  readonly #observer: JobObserver;
  readonly #mayShare: BatchComparison | undefined;
  readonly #forming: FormingBatch | undefined;
  readonly #queue: RequestQueue;
  readonly #inflight = new InflightCounter();
  readonly #order: ReleaseOrder | undefined;
  /** Jobs of this step of the event loop that do not watch for cancellation yet. */
  readonly #unwatched: Job[] = [];
  /** Requests still to come before the first batch (`TRITONSERVER_DELAY_SCHEDULER`). */
  #heldCount: number;
  readonly #timer: WakeTimer;
  #isPassPlanned = false;

  constructor(rules: BatchRules, parts: DynamicBatcherParts) {
    this.#rules = rules;
    this.#pool = parts.pool;
    this.#clock = parts.clock;
    this.#observer = parts.observer;
    this.#mayShare = createBatchComparison(parts.rules);
    this.#forming = parts.batchStrategy && new FormingBatch(parts.batchStrategy);
    this.#queue = new RequestQueue(rules);
    this.#order = rules.preservesOrdering
      ? new ReleaseOrder((job) => this.#release(job))
      : undefined;
    this.#heldCount = parts.delaySchedulerCount;
    this.#timer = new WakeTimer(this.#clock, () => this.#pass());
    this.#pool.onFinished = (jobs) => this.#onFinished(jobs);
    this.#pool.onAvailable = () => this.#pass();
  }

  get inflightCount(): number {
    return this.#inflight.count;
  }

  enqueue(job: Job): void {
    this.#inflight.check(job);
    // A queue is full only when a free instance would not take from it.
    if (this.#isPassPlanned && this.#queue.isFull(job)) {
      this.#pass();
      if (this.#pool.heldBackCount > 0) this.#pool.dispatchNow();
    }
    this.#queue.add(job, job.startMs);
    job.state = "queued";
    job.queueStartMs = job.startMs;
    if (this.#heldCount > 0) this.#heldCount--;
    this.#inflight.add();
    this.#observer.accepted(job);
    if (job.signal !== undefined) this.#unwatched.push(job);
    this.#planPass();
  }

  addInstance(instance: ModelInstance): void {
    this.#pool.addInstance(instance);
  }

  removeInstance(instance: ModelInstance): Promise<void> {
    this.#pool.checkRemovable(instance);
    return this.#pool.removeInstance(instance);
  }

  stop(): Promise<void> {
    const stopping = this.#inflight.stop();
    // Nobody comes any more: what waits need not wait for the test hook or for company.
    this.#heldCount = 0;
    this.#planPass();
    // A timer of requests long gone would hold on to the model.
    return stopping.then(() => {
      this.#timer.cancel();
      this.#forming?.giveUp();
    });
  }

  #planPass(): void {
    if (this.#isPassPlanned) return;
    this.#isPassPlanned = true;
    queueMicrotask(this.#plannedPass);
  }

  readonly #plannedPass = (): void => {
    if (this.#isPassPlanned) this.#pass();
  };

  /** Drops what is late or cancelled, forms every batch that can be formed, and arms the timer for the rest. */
  #pass(): void {
    this.#isPassPlanned = false;
    const nowMs = this.#clock.now();
    this.#watchNewJobs();
    for (const job of this.#queue.expire(nowMs)) this.#drop(job, "REJECTED", timeoutError());
    let waitUntilMs = Infinity;
    while (this.#heldCount === 0 && this.#pool.idleCount > 0 && this.#queue.length > 0) {
      const plan = this.#planBatch(nowMs);
      waitUntilMs = plan.waitUntilMs;
      if (plan.jobs.length === 0) break;
      this.#forming?.sent(plan.jobs.length);
      for (const job of plan.jobs) this.#queue.remove(job);
      this.#order?.add(plan.jobs);
      this.#pool.run(plan.jobs);
    }
    if (this.#pool.heldBackCount > 0) waitUntilMs = this.#askForInstance(nowMs, waitUntilMs);
    this.#timer.arm(Math.min(waitUntilMs, this.#queue.earliestDeadlineMs));
  }

  #planBatch(nowMs: number): BatchPlan {
    return planBatch(this.#scan, {
      rules: this.#rules,
      mayShare: this.#mayShare,
      forming: this.#forming,
      nowMs,
      isLast: this.#inflight.isStopped,
    });
  }

  /**
   * With rate limiter: waits for resources when a batch could run. It is formed only when they are there; here is only
   * found out whether there is one. Returns when to look again.
   */
  #askForInstance(nowMs: number, waitUntilMs: number): number {
    if (this.#pool.idleCount > 0 || this.#heldCount > 0 || this.#queue.length === 0) {
      this.#pool.setDemand(false);
      return waitUntilMs;
    }
    const plan = this.#planBatch(nowMs);
    this.#pool.setDemand(plan.jobs.length > 0);
    return plan.waitUntilMs;
  }

  readonly #scan = (visit: (job: Job) => boolean): void => this.#queue.scan(visit);

  #watchNewJobs(): void {
    if (this.#unwatched.length === 0) return;
    for (const job of this.#unwatched) {
      if (job.state !== "queued") continue;
      if (job.isAborted) this.#onAbort(job);
      else job.watch(this.#onAbort);
    }
    this.#unwatched.length = 0;
  }

  readonly #onAbort = (job: Job): void => {
    if (!this.#queue.remove(job)) return;
    this.#drop(job, "CANCELED", cancelledError());
    // What was held back behind it, by its shape or its size, may be able to go now.
    this.#planPass();
  };

  #drop(job: Job, reason: FailureReason, error: ServerError): void {
    this.#observer.dropped(job, reason, this.#clock.now());
    job.finish({ error });
    this.#inflight.subtract();
  }

  #onFinished(jobs: readonly Job[]): void {
    this.#pass();
    if (this.#order === undefined) { for (const job of jobs) this.#release(job); }
    else this.#order.advance();
  }

  #release(job: Job): void {
    job.settle(job.outcome!, this.#onEnd);
  }

  readonly #onEnd = (): void => {
    this.#inflight.subtract();
    this.#order?.advance();
  };
}

function timeoutError(): ServerError {
  return new ServerError("UNAVAILABLE", "Request timeout expired");
}
