import type { ExecuteOutcome, ExecuteReport, ModelInstance } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Clock } from "../clock.ts";
import type { FailureReason, Job, ResponseObserver } from "./job.ts";

const NOT_ITERATIVE =
  "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not " +
  "configured to handle such a flag.";

/** What the pool and the schedulers tell the statistics; implemented by `VersionStatistics`. */
export interface JobObserver extends ResponseObserver {
  /** A scheduler took the job. */
  accepted(job: Job): void;
  /** Jobs were handed to an instance. */
  started(jobs: readonly Job[]): void;
  /** A job left the queue without ever running. */
  dropped(job: Job, reason: FailureReason, nowMs: number): void;
  /** An execution ended, `job.outcome` is set; called once per batch, before its jobs are finished. */
  executed(jobs: readonly Job[], times: ExecuteTimes): void;
}

/** The four points of time of one execution, ms. */
export interface ExecuteTimes {
  readonly startMs: number;
  readonly inputEndMs: number;
  readonly outputStartMs: number;
  readonly endMs: number;
}

/** What a pool works with. */
export interface InstancePoolOptions {
  readonly instances: readonly ModelInstance[];
  readonly clock: Clock;
  readonly observer: JobObserver;
}

/** The instances of one model version, each running at most one batch at a time. */
export class InstancePool {
  /** Set by the scheduler: an instance became free, the outcomes of its batch are in `job.outcome`. */
  onFinished: (jobs: readonly Job[]) => void = () => {};
  readonly #idle: ModelInstance[];
  readonly #clock: Clock;
  readonly #observer: JobObserver;

  constructor(options: InstancePoolOptions) {
    this.#idle = [...options.instances].reverse();
    this.#clock = options.clock;
    this.#observer = options.observer;
  }

  get idleCount(): number {
    return this.#idle.length;
  }

  /** Runs a batch on a free instance; the caller has looked at `idleCount`. */
  run(jobs: readonly Job[]): void {
    const instance = this.#idle.pop();
    if (instance === undefined) throw new TypeError("No instance is free");
    const startMs = this.#clock.now();
    for (const job of jobs) {
      job.state = "executing";
      job.observer = this.#observer;
      job.executeStartMs = startMs;
      job.unwatch();
    }
    this.#observer.started(jobs);
    let running: Promise<ExecuteReport>;
    try {
      running = instance.execute(jobs);
    } catch (error) {
      running = Promise.reject(error);
    }
    running.then(
      (report) => this.#finish(instance, jobs, report, startMs),
      (error) => this.#finish(instance, jobs, this.#failure(jobs, error), startMs),
    );
  }

  #failure(jobs: readonly Job[], error: unknown): ExecuteReport {
    const now = this.#clock.now();
    const outcome = { error: ServerError.from(error) };
    return { outcomes: jobs.map(() => outcome), inputEndMs: now, outputStartMs: now };
  }

  #finish(
    instance: ModelInstance,
    jobs: readonly Job[],
    report: ExecuteReport,
    startMs: number,
  ): void {
    const { outcomes, inputEndMs, outputStartMs } = report;
    for (let index = 0; index < jobs.length; index++) {
      jobs[index]!.outcome = turnOutcome(jobs[index]!, outcomes[index] ?? missingOutcome());
    }
    const endMs = this.#clock.now();
    this.#observer.executed(jobs, { startMs, inputEndMs, outputStartMs, endMs });
    this.#idle.push(instance);
    this.onFinished(jobs);
  }
}

/** Another turn is only for jobs that may have one and still owe their last response (scheduling.md §4.1). */
function turnOutcome(job: Job, outcome: ExecuteOutcome): ExecuteOutcome {
  if (!("streamed" in outcome) || outcome.reschedule !== true) return outcome;
  if (!job.mayReschedule) return { error: new ServerError("INTERNAL", NOT_ITERATIVE) };
  return job.isFinalSent ? { ...outcome, reschedule: false } : outcome;
}

function missingOutcome(): ExecuteOutcome {
  return { error: new ServerError("INTERNAL", "Backend returned no outcome for the request") };
}
