import type { ExecuteResponse } from "../../../backends/backend.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import type { Clock } from "../clock.ts";
import type { Log } from "../log.ts";
import type { CachePartition } from "../response_cache.ts";
import { requestKey } from "../response_cache_key.ts";
import { AnswerOrder } from "./answer_order.ts";
import type { JobObserver } from "./instance_pool.ts";
import { cancelledError, type Job } from "./job.ts";
import type { Scheduler, StopOptions } from "./scheduler.ts";

/** What the statistics are told about the cache; implemented by `VersionStatistics`. */
export interface CacheObserver extends Pick<JobObserver, "accepted" | "dropped"> {
  /** An accepted job is answered from the cache. */
  cacheHit(job: Job, lookup: Lookup): void;
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
  /** Answers leave in the order of the requests (scheduling.md §2.6); false when absent. */
  readonly preservesOrdering?: boolean;
}

/** When a job was looked up, ms. */
interface Lookup {
  readonly startMs: number;
  readonly endMs: number;
}

/**
 * Answers requests from the response cache, before any queue, and keeps the answers of those it has to run
 * (scheduling.md §7). Equal requests at the same time all run; the first answer is kept.
 */
export class CachingScheduler implements Scheduler {
  readonly #parts: CachingSchedulerParts;
  readonly #order: AnswerOrder | undefined;
  #isStopped = false;
  #isWarned = false;

  constructor(parts: CachingSchedulerParts) {
    this.#parts = parts;
    if (parts.preservesOrdering) this.#order = new AnswerOrder();
  }

  get inflightCount(): number {
    return this.#parts.scheduler.inflightCount + (this.#order?.heldCount ?? 0);
  }

  enqueue(job: Job): void {
    const { partition, clock } = this.#parts;
    // Whoever has gone or comes too late is told so by the scheduler.
    if (this.#isStopped || job.isAborted || isOfSequence(job)) {
      this.#run(job, () => {});
      return;
    }
    const startMs = clock.now();
    const key = requestKey(job, partition.id);
    const outputs = partition.lookup(key);
    const endMs = clock.now();
    if (outputs !== undefined) this.#answer(job, outputs, { startMs, endMs });
    else this.#run(job, (response) => this.#keep(job, key, response, endMs - startMs));
  }

  #answer(job: Job, outputs: readonly Tensor[], lookup: Lookup): void {
    const { observer, clock } = this.#parts;
    job.state = "queued";
    job.queueStartMs = job.startMs;
    observer.accepted(job);
    const release = () => {
      if (job.isAborted) {
        observer.dropped(job, "CANCELED", clock.now());
        job.finish({ error: cancelledError() });
        return;
      }
      observer.cacheHit(job, lookup);
      job.finish({ outputs });
    };
    if (this.#order === undefined) release();
    else this.#order.addReady(release);
  }

  #run(job: Job, onAnswer: (response: ExecuteResponse | undefined) => void): void {
    const { scheduler } = this.#parts;
    const order = this.#order;
    if (order === undefined) {
      job.beforeFinish = onAnswer;
      scheduler.enqueue(job);
      return;
    }
    const place = order.addRunning();
    job.beforeFinish = (response) => {
      onAnswer(response);
      order.end(place);
    };
    try {
      scheduler.enqueue(job);
    } catch (refusal) {
      order.end(place);
      throw refusal;
    }
  }

  /** Also drops what was kept; answers of requests still running are not kept any more. */
  async stop(options?: StopOptions): Promise<void> {
    this.#isStopped = true;
    this.#parts.partition.clear();
    await this.#parts.scheduler.stop(options);
    this.#order?.releaseReady();
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
