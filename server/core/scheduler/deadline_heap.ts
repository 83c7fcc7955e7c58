import type { Job } from "./job.ts";

/** Jobs with a deadline, the earliest first; a job can be taken out wherever it is. */
export class DeadlineHeap {
  readonly #jobs: Job[] = [];

  get earliest(): Job | undefined {
    return this.#jobs[0];
  }

  get length(): number {
    return this.#jobs.length;
  }

  add(job: Job): void {
    job.heapIndex = this.#jobs.length;
    this.#jobs.push(job);
    this.#up(job.heapIndex);
  }

  remove(job: Job): void {
    const index = job.heapIndex;
    if (index < 0) return;
    job.heapIndex = -1;
    const last = this.#jobs.pop();
    if (last === undefined || last === job) return;
    this.#place(last, index);
    this.#up(index);
    this.#down(last.heapIndex);
  }

  #place(job: Job, index: number): void {
    this.#jobs[index] = job;
    job.heapIndex = index;
  }

  #up(start: number): void {
    const jobs = this.#jobs;
    let index = start;
    const job = jobs[index]!;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const other = jobs[parent]!;
      if (other.deadlineMs <= job.deadlineMs) break;
      this.#place(other, index);
      index = parent;
    }
    this.#place(job, index);
  }

  #down(start: number): void {
    const jobs = this.#jobs;
    let index = start;
    const job = jobs[index]!;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= jobs.length) break;
      if (child + 1 < jobs.length && jobs[child + 1]!.deadlineMs < jobs[child]!.deadlineMs) child++;
      const other = jobs[child]!;
      if (other.deadlineMs >= job.deadlineMs) break;
      this.#place(other, index);
      index = child;
    }
    this.#place(job, index);
  }
}
