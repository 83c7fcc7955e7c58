import type { Job } from "./job.ts";

/**
 * Answers jobs in the order in which they entered a batch (scheduling.md §2.6): all responses of one before the first
 * of the next. Jobs whose turn has not come hold what their model sends.
 */
export class ReleaseOrder {
  readonly #settle: (job: Job) => void;
  #batches: (readonly Job[])[] = [];
  /** The batch whose turn it is, and the job in it. */
  #head = 0;
  #position = 0;
  /** The job whose turn it is was settled, and may still send. */
  #isSettled = false;
  #isAdvancing = false;

  /** `settle` answers a job with its outcome, and calls `advance()` when that was the end of it. */
  constructor(settle: (job: Job) => void) {
    this.#settle = settle;
  }

  /** Jobs enter a batch. */
  add(jobs: readonly Job[]): void {
    const isTurn = this.#head === this.#batches.length;
    this.#batches.push(jobs);
    for (const job of jobs) job.hold({ mayWait: true });
    if (isTurn) this.#enterBatch();
  }

  /** Settles every job whose turn it is: outcome known, all before it over. */
  advance(): void {
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    for (;;) {
      const job = this.#batches[this.#head]?.[this.#position];
      if (job === undefined || (!this.#isSettled && job.outcome === undefined)) break;
      if (!this.#isSettled) {
        this.#isSettled = true;
        this.#settle(job);
      }
      if (job.state !== "done") break;
      this.#step();
    }
    this.#isAdvancing = false;
  }

  #step(): void {
    this.#isSettled = false;
    this.#position++;
    const batch = this.#batches[this.#head]!;
    if (this.#position < batch.length) return batch[this.#position]!.open();
    this.#head++;
    this.#position = 0;
    if (this.#head * 2 >= this.#batches.length) {
      this.#batches = this.#batches.slice(this.#head);
      this.#head = 0;
    }
    if (this.#head < this.#batches.length) this.#enterBatch();
  }

  /** From now on only jobs of the same batch are waited for, and their model must not be stopped. */
  #enterBatch(): void {
    const batch = this.#batches[this.#head]!;
    for (const job of batch) job.hold({ mayWait: false });
    batch[0]!.open();
  }
}
