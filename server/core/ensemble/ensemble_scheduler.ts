import type { Clock } from "../clock.ts";
import {
  cancelledError,
  type ComputeSums,
  type FailureReason,
  type Job,
  type ResponseObserver,
} from "../scheduler/job.ts";
import { InflightCounter, type Scheduler } from "../scheduler/scheduler.ts";
import { type EnsembleEnd, EnsembleRun, type EnsembleRunParts } from "./ensemble_run.ts";

/** What the scheduler tells the statistics; implemented by `VersionStatistics`. */
export interface EnsembleObserver extends ResponseObserver {
  accepted(job: Job): void;
  started(jobs: readonly Job[]): void;
  dropped(job: Job, reason: FailureReason, nowMs: number): void;
  /** A request that was started failed. */
  failed(job: Job, reason: FailureReason, nowMs: number): void;
  /** A request that was started at `startMs` succeeded; durations are sums over the requests of its steps. */
  composed(job: Job, startMs: number, sums: ComputeSums): void;
}

/** What an ensemble works with. */
export interface EnsembleSchedulerOptions extends EnsembleRunParts {
  readonly clock: Clock;
  readonly observer: EnsembleObserver;
  /** Lets go of the models of the steps; called once, when the scheduler was stopped and every job is finished. */
  readonly releaseModels: () => void;
}

/** Runs requests through the steps of an ensemble, each step through the whole scheduling of its model. */
export class EnsembleScheduler implements Scheduler {
  readonly #options: EnsembleSchedulerOptions;
  readonly #inflight = new InflightCounter();
  #stopping: Promise<void> | undefined;

  constructor(options: EnsembleSchedulerOptions) {
    this.#options = options;
  }

  get inflightCount(): number {
    return this.#inflight.count;
  }

  enqueue(job: Job): void {
    this.#inflight.check(job);
    const { clock, observer } = this.#options;
    job.state = "queued";
    job.queueStartMs = job.startMs;
    this.#inflight.add();
    observer.accepted(job);
    if (job.isAborted) {
      observer.dropped(job, "CANCELED", clock.now());
      job.finish({ error: cancelledError() });
      this.#inflight.subtract();
      return;
    }
    const startMs = clock.now();
    observer.started([job]);
    job.state = "executing";
    job.executeStartMs = startMs;
    job.observer = observer;
    const run = new EnsembleRun(this.#options, job, (end) => this.#count(job, startMs, end));
    job.watch(() => run.cancel());
    run.start();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#inflight.stop().then(this.#options.releaseModels);
    return this.#stopping;
  }

  #count(job: Job, startMs: number, { error, isCancelled, compute }: EnsembleEnd): void {
    const { clock, observer } = this.#options;
    if (error === undefined) observer.composed(job, startMs, compute);
    else observer.failed(job, isCancelled ? "CANCELED" : "OTHER", clock.now());
    this.#inflight.subtract();
  }
}
