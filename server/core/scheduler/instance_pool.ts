import type { ExecuteOutcome, ExecuteReport, ModelInstance } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Clock } from "../clock.ts";
import { FreeInstances, type IdleInstances, RatedInstances } from "./idle_instances.ts";
import type { FailureReason, Job, ResponseObserver } from "./job.ts";
import type { ModelRates } from "./rate_limiter.ts";
import type { Trace } from "../trace.ts";

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

/** One execution. */
interface Run {
  readonly instance: ModelInstance;
  readonly jobs: readonly Job[];
  readonly startMs: number;
}

/** An instance that gets no more work. */
interface LeavingInstance {
  isRunning: boolean;
  readonly onLeft: () => void;
}

/** What a pool works with. */
export interface InstancePoolOptions {
  readonly instances: readonly ModelInstance[];
  readonly clock: Clock;
  readonly observer: JobObserver;
  /** What the rate limiter knows of the instances; absent = an idle instance may always run. */
  readonly rates?: ModelRates;
}

/**
 * The instances of one model version, each running at most one batch at a time (and holding others, `tryRunAhead`).
 *
 * With a rate limiter an idle instance may have to wait for its resources: `idleCount` counts those that need not, and
 * a scheduler that has work left when it is 0 says so by `setDemand`; `onAvailable` is then called when the time has
 * come.
 */
export class InstancePool {
  /** Set by the scheduler: an instance became free, the outcomes of its batch are in `job.outcome`. */
  onFinished: (jobs: readonly Job[]) => void = () => {};
  /** Set by a scheduler that has something to take out of each outcome before it counts. */
  refine: ((job: Job, outcome: ExecuteOutcome) => ExecuteOutcome) | undefined;
  /** Set by the scheduler: `idleCount` is not 0 any more, without that a batch ended; what does not run now may not later. */
  onAvailable: () => void = () => {};
  readonly #idle: IdleInstances;
  readonly #rates: ModelRates | undefined;
  readonly #instances: Set<ModelInstance>;
  /** Jobs whose responses still come after their execution, by instance. */
  readonly #streaming = new Map<ModelInstance, Set<Job>>();
  readonly #leaving = new Map<ModelInstance, LeavingInstance>();
  readonly #clock: Clock;
  readonly #observer: JobObserver;
  /** The only instance, if it takes work ahead. */
  #lone: ModelInstance | undefined;
  /** The instance that has been given work behind what it runs, and how often. */
  #aheadInstance: ModelInstance | undefined;
  #aheadCount = 0;

  constructor(options: InstancePoolOptions) {
    const { instances, rates } = options;
    this.#idle = rates === undefined
      ? new FreeInstances(instances)
      : new RatedInstances(instances, rates, () => this.onAvailable());
    this.#rates = rates;
    this.#instances = new Set(instances);
    this.#clock = options.clock;
    this.#observer = options.observer;
    this.#findLone();
  }

  /** Instances that may run a batch now. */
  get idleCount(): number {
    return this.#idle.count;
  }

  /** Instances that run nothing and must wait for resources; always 0 without rate limiter. */
  get heldBackCount(): number {
    return this.#idle.heldBackCount;
  }

  /** Says whether work waits that could run on an instance; without rate limiter nothing follows from it. */
  setDemand(hasWork: boolean): void {
    this.#idle.setDemand(hasWork);
  }

  /** Looks at once who may have which resources, not at the end of this step of the event loop. */
  dispatchNow(): void {
    this.#rates?.limiter.dispatch();
  }

  /** Takes a further instance into service; it may run at once. The rate limiter must know it already. */
  addInstance(instance: ModelInstance): void {
    if (this.#instances.has(instance)) throw new TypeError("Instance is in the pool already");
    this.#idle.add(instance);
    this.#instances.add(instance);
    this.#findLone();
    this.onAvailable();
  }

  /**
   * Gives an instance no more work; settles when it runs nothing any more and all responses of its requests have come,
   * and only then it may be disposed. The last one may leave too: what waits then waits for another one.
   */
  removeInstance(instance: ModelInstance): Promise<void> {
    if (!this.#instances.delete(instance)) throw new TypeError("Instance is not in the pool");
    this.#findLone();
    return new Promise((onLeft) => {
      this.#leaving.set(instance, { isRunning: !this.#idle.remove(instance), onLeft });
      this.#checkLeft(instance);
    });
  }

  #findLone(): void {
    const [first] = this.#instances;
    const isLone = this.#instances.size === 1 && this.#rates === undefined;
    this.#lone = isLone && first?.takesAhead !== undefined ? first : undefined;
  }

  /** Throws unless the instance may leave a scheduler that has this pool alone. */
  checkRemovable(instance: ModelInstance): void {
    if (this.#instances.size > 1 || !this.#instances.has(instance)) return;
    throw new RangeError("The last instance of a model cannot be removed");
  }

  /** Runs a batch on a free instance; the caller has looked at `idleCount`. */
  run(jobs: readonly Job[]): void {
    const instance = this.#idle.take();
    if (instance === undefined) throw new TypeError("No instance is free");
    this.#start(instance, jobs);
  }

  /**
   * Gives a job to the one instance of the pool behind what it runs, when there is nothing to be lost by that: the job
   * would have been the next to run there. Calls of models are not among them, since the way to end one that waits for
   * its own caller is to cancel it in the queue. Returns whether it was given.
   */
  tryRunAhead(job: Job): boolean {
    const instance = this.#lone;
    if (instance === undefined || job.isCall || job.trace !== undefined) return false;
    if (this.#aheadCount > 0 && this.#aheadInstance !== instance) return false;
    if (!instance.takesAhead!(job)) return false;
    this.#aheadInstance = instance;
    this.#aheadCount++;
    this.#start(instance, [job]);
    return true;
  }

  #start(instance: ModelInstance, jobs: readonly Job[]): void {
    const startMs = this.#clock.now();
    for (const job of jobs) {
      job.state = "executing";
      job.observer = this.#observer;
      job.executeStartMs = startMs;
      job.placement = instance.placement;
      job.unwatch();
      if (job.trace !== undefined) job.trace.tensors("TENSOR_BACKEND_INPUT", job.inputs);
    }
    this.#observer.started(jobs);
    let running: Promise<ExecuteReport>;
    try {
      running = instance.execute(jobs);
    } catch (error) {
      running = Promise.reject(error);
    }
    const run = { instance, jobs, startMs };
    running.then(
      (report) => this.#finish(run, report),
      (error) => this.#finish(run, this.#failure(jobs, error)),
    );
  }

  #failure(jobs: readonly Job[], error: unknown): ExecuteReport {
    const now = this.#clock.now();
    const outcome = { error: ServerError.from(error) };
    return { outcomes: jobs.map(() => outcome), inputEndMs: now, outputStartMs: now };
  }

  #finish(run: Run, report: ExecuteReport): void {
    const { instance, jobs } = run;
    const { outcomes, startMs = run.startMs, inputEndMs, outputStartMs } = report;
    for (let index = 0; index < jobs.length; index++) {
      const job = jobs[index]!;
      let outcome = outcomes[index] ?? missingOutcome();
      if ("streamed" in outcome) outcome = this.#streamed(instance, job, outcome);
      job.outcome = this.refine === undefined ? outcome : this.#refined(this.refine, job, outcome);
    }
    const endMs = this.#clock.now();
    const times = { startMs, inputEndMs, outputStartMs, endMs };
    this.#observer.executed(jobs, times);
    for (const job of jobs) if (job.trace !== undefined) traceExecution(job, job.trace, times);
    if (this.#aheadCount > 0 && this.#aheadInstance === instance) this.#aheadCount--;
    else this.#giveBack(instance);
    this.onFinished(jobs);
  }

  /** The instance runs nothing any more. */
  #giveBack(instance: ModelInstance): void {
    const leaving = this.#leaving.size === 0 ? undefined : this.#leaving.get(instance);
    if (leaving === undefined) return this.#idle.giveBack(instance);
    leaving.isRunning = false;
    this.#idle.dismiss(instance);
    this.#checkLeft(instance);
  }

  /** Whatever happens, the instance comes back and every job gets an answer. */
  #refined(
    refine: (job: Job, outcome: ExecuteOutcome) => ExecuteOutcome,
    job: Job,
    outcome: ExecuteOutcome,
  ): ExecuteOutcome {
    try {
      return refine(job, outcome);
    } catch (reason) {
      // Such as too little memory for a copy of a state.
      if ("outputs" in outcome) outcome.release?.();
      return { error: ServerError.from(reason) };
    }
  }

  #checkLeft(instance: ModelInstance): void {
    const leaving = this.#leaving.get(instance);
    if (leaving === undefined || leaving.isRunning || this.#streaming.has(instance)) return;
    this.#leaving.delete(instance);
    this.#rates?.remove(instance);
    leaving.onLeft();
  }

  /** Another turn is only for jobs that may have one and still owe their last response (scheduling.md §4.1). */
  #streamed(instance: ModelInstance, job: Job, outcome: StreamedOutcome): ExecuteOutcome {
    if (outcome.reschedule === true) {
      if (!job.mayReschedule) return { error: new ServerError("INTERNAL", NOT_ITERATIVE) };
      return job.isFinalSent ? { ...outcome, reschedule: false } : outcome;
    }
    if (!job.isFinalSent && !job.isNull) this.#followStream(instance, job);
    return outcome;
  }

  /** Notes that the instance still works for a job, until the last response. */
  #followStream(instance: ModelInstance, job: Job): void {
    let jobs = this.#streaming.get(instance);
    if (jobs === undefined) this.#streaming.set(instance, jobs = new Set());
    jobs.add(job);
    const before = job.beforeFinish;
    job.beforeFinish = (response) => {
      before?.(response);
      jobs.delete(job);
      if (jobs.size > 0) return;
      this.#streaming.delete(instance);
      this.#checkLeft(instance);
    };
  }
}

function traceExecution({ outcome }: Job, trace: Trace, times: ExecuteTimes): void {
  trace.executed(times);
  if (outcome !== undefined && "outputs" in outcome) {
    trace.tensors("TENSOR_BACKEND_OUTPUT", outcome.outputs);
  }
}

type StreamedOutcome = Extract<ExecuteOutcome, { readonly streamed: true }>;

function missingOutcome(): ExecuteOutcome {
  return { error: new ServerError("INTERNAL", "Backend returned no outcome for the request") };
}
