import type { ModelInstance } from "../../../backends/backend.ts";
import type { Clock } from "../clock.ts";
import type { InstancePool, JobObserver } from "./instance_pool.ts";
import { cancelledError, type Job } from "./job.ts";
import { JobList } from "./job_list.ts";
import { InflightCounter, type InstanceScheduler } from "./scheduler.ts";

/** What the default scheduler works with. */
export interface DefaultSchedulerOptions {
  readonly pool: InstancePool;
  readonly clock: Clock;
  readonly observer: JobObserver;
}

/** One request is one execution, first come first served (scheduling.md §1). */
export class DefaultScheduler implements InstanceScheduler {
  readonly #pool: InstancePool;
  readonly #clock: Clock;
  readonly #observer: JobObserver;
  readonly #waiting = new JobList();
  readonly #inflight = new InflightCounter();

  constructor(options: DefaultSchedulerOptions) {
    this.#pool = options.pool;
    this.#clock = options.clock;
    this.#observer = options.observer;
    this.#pool.onFinished = (jobs) => this.#onFinished(jobs);
    this.#pool.onAvailable = () => this.#runWaiting();
  }

  get inflightCount(): number {
    return this.#inflight.count;
  }

  enqueue(job: Job): void {
    this.#inflight.check(job);
    job.state = "queued";
    job.queueStartMs = job.startMs;
    this.#inflight.add();
    this.#observer.accepted(job);
    if (job.isAborted) this.#drop(job);
    else if (this.#pool.idleCount > 0) this.#pool.run([job]);
    else if (this.#waiting.length > 0 || !this.#pool.tryRunAhead(job)) {
      this.#waiting.push(job);
      job.watch(this.#onAbort);
      this.#pool.setDemand(true);
    }
  }

  addInstance(instance: ModelInstance): void {
    this.#pool.addInstance(instance);
  }

  removeInstance(instance: ModelInstance): Promise<void> {
    this.#pool.checkRemovable(instance);
    return this.#pool.removeInstance(instance);
  }

  stop(): Promise<void> {
    return this.#inflight.stop();
  }

  readonly #onEnd = (): void => this.#inflight.subtract();

  readonly #onAbort = (job: Job): void => {
    if (!this.#waiting.remove(job)) return;
    this.#pool.setDemand(this.#waiting.length > 0);
    this.#drop(job);
  };

  #drop(job: Job): void {
    this.#observer.dropped(job, "CANCELED", this.#clock.now());
    job.finish({ error: cancelledError() });
    this.#inflight.subtract();
  }

  #runWaiting(): void {
    for (let job = this.#waiting.first; job !== undefined; job = this.#waiting.first) {
      if (this.#pool.idleCount > 0) this.#pool.run([this.#waiting.shift()!]);
      else if (this.#pool.tryRunAhead(job)) this.#waiting.remove(job);
      else break;
    }
    this.#pool.setDemand(this.#waiting.length > 0);
  }

  #onFinished(jobs: readonly Job[]): void {
    this.#runWaiting();
    for (const job of jobs) job.settle(job.outcome!, this.#onEnd);
  }
}
