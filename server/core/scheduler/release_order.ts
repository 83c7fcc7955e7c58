import type { Job } from "./job.ts";

/** Holds answered jobs back until all that entered a batch before them were answered (scheduling.md §2.6). */
export class ReleaseOrder {
  #jobs: Job[] = [];
  #head = 0;

  /** Jobs enter a batch. */
  add(jobs: readonly Job[]): void {
    for (const job of jobs) this.#jobs.push(job);
  }

  /** Calls `release` for every job whose turn it is: outcome known, nobody before it. */
  release(release: (job: Job) => void): void {
    while (this.#head < this.#jobs.length) {
      const job = this.#jobs[this.#head]!;
      if (job.outcome === undefined) break;
      this.#head++;
      release(job);
    }
    if (this.#head * 2 >= this.#jobs.length) {
      this.#jobs = this.#jobs.slice(this.#head);
      this.#head = 0;
    }
  }
}
