import type { BatchComparison } from "./batch_compare.ts";
import { planBatch } from "./batch_plan.ts";
import type { Job } from "./job.ts";
import { JobList } from "./job_list.ts";
import type { Sequence } from "./sequence.ts";
import type { SequenceHost, SequenceStrategy } from "./sequence_lane.ts";
import type { SequenceRules } from "./sequence_rules.ts";

/** What the strategy works with. */
export interface OldestStrategyParts {
  readonly host: SequenceHost;
  readonly rules: SequenceRules;
  readonly mayShare: BatchComparison | undefined;
}

/**
 * The strategy *oldest* (scheduling.md §4): every sequence offers one request at a time, and batches are formed of what
 * is offered by the rules of the dynamic batcher. One instance runs one batch at a time and takes its requests in the
 * order they were offered, so that answers keep that order whether the configuration asks for it or not.
 */
export class OldestStrategy implements SequenceStrategy {
  readonly #parts: OldestStrategyParts;
  readonly #offered = new JobList();
  #planned: Job[] = [];

  constructor(parts: OldestStrategyParts) {
    this.#parts = parts;
  }

  offer(sequence: Sequence): void {
    const job = this.#parts.host.prepare(sequence);
    sequence.remove(job);
    sequence.handedOn = job;
    this.#offered.push(job);
  }

  dueMs(nowMs: number): number {
    const { host, rules, mayShare } = this.#parts;
    const context = { rules: rules.batch, mayShare, nowMs, isLast: host.isStopped };
    const { jobs, waitUntilMs } = planBatch(this.#scan, context);
    this.#planned = jobs;
    return jobs.length > 0 ? nowMs : waitUntilMs;
  }

  take(): Job[] {
    const jobs = this.#planned;
    this.#planned = [];
    for (const job of jobs) this.#offered.remove(job);
    return jobs;
  }

  readonly #scan = (visit: (job: Job) => boolean): void => {
    for (let job = this.#offered.first; job !== undefined; job = job.next) {
      if (!visit(job)) return;
    }
  };
}
