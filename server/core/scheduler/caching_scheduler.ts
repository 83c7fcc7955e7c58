import type { ExecuteResponse } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Clock } from "../clock.ts";
import type { Log } from "../log.ts";
import type { CachePartition } from "../response_cache.ts";
import { requestKey } from "../response_cache_key.ts";
import type { JobObserver } from "./instance_pool.ts";
import type { Job } from "./job.ts";
import type { Scheduler, StopOptions } from "./scheduler.ts";

/** What the statistics are told about the cache; implemented by `VersionStatistics`. */
export interface CacheObserver extends Pick<JobObserver, "accepted"> {
  /** An accepted job is answered from the cache. */
  cacheHit(job: Job, lookup: { readonly startMs: number; readonly endMs: number }): void;
  /** A response was offered to the cache, after so much time for looking it up and inserting it. */
  cacheMiss(durationMs: number): void;
}

/** What a caching scheduler works with. */
export interface CachingSchedulerParts {
  /** Runs what is not in the cache. */
  readonly scheduler: Scheduler;
  readonly partition: CachePartition;
  readonly observer: CacheObserver;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Answers requests from the response cache, before any queue, and keeps the answers of those it has to run
 * (scheduling.md §7). Equal requests at the same time all run; the first answer is kept.
 */
export class CachingScheduler implements Scheduler {
  readonly #parts: CachingSchedulerParts;
  #isStopped = false;
  #isWarned = false;

  constructor(parts: CachingSchedulerParts) {
    this.#parts = parts;
  }

  get inflightCount(): number {
    return this.#parts.scheduler.inflightCount;
  }

  enqueue(job: Job): void {
    const { scheduler, partition, observer, clock } = this.#parts;
    // Whoever has gone or comes too late is told so by the scheduler.
    if (this.#isStopped || job.isAborted || isOfSequence(job)) {
      scheduler.enqueue(job);
      return;
    }
    const startMs = clock.now();
    const key = requestKey(job, partition.id);
    const outputs = partition.lookup(key);
    const endMs = clock.now();
    if (outputs !== undefined) {
      job.queueStartMs = job.startMs;
      observer.accepted(job);
      observer.cacheHit(job, { startMs, endMs });
      job.finish({ outputs });
      return;
    }
    job.beforeFinish = (response) => this.#keep(job, key, response, endMs - startMs);
    scheduler.enqueue(job);
  }

  /** Also drops what was kept; answers of requests still running are not kept any more. */
  stop(options?: StopOptions): Promise<void> {
    this.#isStopped = true;
    this.#parts.partition.clear();
    return this.#parts.scheduler.stop(options);
  }

  /** Keeps the answer if it is the complete and only one of a request that somebody waited for. */
  #keep(job: Job, key: string, response: ExecuteResponse | undefined, lookupMs: number): void {
    if (this.#isStopped || job.isAborted) return;
    if (response === undefined || "error" in response) return;
    const { partition, observer, clock } = this.#parts;
    const startMs = clock.now();
    try {
      if (partition.insert(key, response.outputs) === "exists") return;
    } catch (reason) {
      this.#warn(key, ServerError.from(reason));
    }
    observer.cacheMiss(lookupMs + clock.now() - startMs);
  }

  /** The request is answered all the same; one warning is enough for a model whose answers do not fit. */
  #warn(key: string, reason: ServerError): void {
    const text = `Failed to insert key [${key}] into response cache: ${reason.message}`;
    const { log } = this.#parts;
    if (this.#isWarned) log.verbose(1, text);
    else log.warning(text);
    this.#isWarned = true;
  }
}

/** The answer may depend on what came before: a step of an ensemble may be a sequence model. */
function isOfSequence({ correlationId, sequenceStart, sequenceEnd }: Job): boolean {
  return sequenceStart || sequenceEnd || (correlationId !== 0n && correlationId !== "");
}
