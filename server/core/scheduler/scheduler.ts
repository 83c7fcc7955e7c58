import type { ModelInstance } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import { type Job, requestPrefix } from "./job.ts";

/**
 * Decides when which requests of one model version run together, and on which instance.
 *
 * Ownership: `enqueue` either throws, and the job was never taken and stays unanswered; or it returns, and from then on
 * the scheduler alone owns the job and calls `job.finish` exactly once: with the instance's outcome, or with an error
 * when it was refused, timed out or was cancelled. A job is finished only when no instance uses its buffers any more.
 */
export interface Scheduler {
  /** Takes a job. @throws ServerError when it is refused: queue full, or the scheduler was stopped (not for calls). */
  enqueue(job: Job): void;
  /** Jobs taken and not finished yet. */
  readonly inflightCount: number;
  /**
   * Refuses new jobs from now on, but for calls that others in flight need (`Job.isCall`); settles when no job is left.
   * Called again, it settles when none is left once more.
   */
  stop(options?: StopOptions): Promise<void>;
}

/** A scheduler whose instances may come and go while it runs (scheduling.md §10). */
export interface InstanceScheduler extends Scheduler {
  /** Takes a further instance into service: it serves what waits at once. The rate limiter must know it already. */
  addInstance(instance: ModelInstance): void;
  /**
   * Gives an instance no more work. Settles when it has nothing to do any more, all responses of its requests have come
   * and the rate limiter has forgotten it: then it may be disposed.
   * @throws RangeError for the last instance: what waits could never run.
   */
  removeInstance(instance: ModelInstance): Promise<void>;
  /** Whether sequences run on an instance, which their clients end when they like; absent = there are none. */
  holdsSequences?(instance: ModelInstance): boolean;
}

/** How a scheduler stops. */
export interface StopOptions {
  /** Requests of sequences that have begun are still taken, as long as there is anything in flight. */
  readonly finishesSequences?: boolean;
}

/** The refusal of a scheduler that was stopped (scheduling.md §12). */
export function stoppedError(job: Job): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    `${requestPrefix(job.id)}Server is stopping, scheduler for model has stopped accepting new ` +
      `inference requests`,
  );
}

/** Counts what a scheduler owes an answer, and tells when a stopped one owes none any more. */
export class InflightCounter {
  #count = 0;
  #stopped = false;
  #drained: PromiseWithResolvers<void> | undefined;

  get count(): number {
    return this.#count;
  }

  get isStopped(): boolean {
    return this.#stopped;
  }

  /** @throws ServerError for a job that comes too late. */
  check(job: Job): void {
    if (this.#stopped && !job.isCall) throw stoppedError(job);
  }

  add(): void {
    this.#count++;
  }

  subtract(): void {
    this.#count--;
    if (this.#count > 0) return;
    this.#drained?.resolve();
    this.#drained = undefined;
  }

  stop(): Promise<void> {
    this.#stopped = true;
    if (this.#count === 0) return Promise.resolve();
    this.#drained ??= Promise.withResolvers<void>();
    return this.#drained.promise;
  }
}
