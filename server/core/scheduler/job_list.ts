import type { Job } from "./job.ts";

/** A doubly linked list of waiting jobs: appending, taking the first and removing any one are constant time. */
export class JobList {
  first: Job | undefined;
  #last: Job | undefined;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(job: Job): void {
    if (job.list !== undefined) throw new TypeError("Job waits in a list already");
    job.list = this;
    job.previous = this.#last;
    job.next = undefined;
    if (this.#last === undefined) this.first = job;
    else this.#last.next = job;
    this.#last = job;
    this.#length++;
  }

  /** Puts a job in front of all others: it has waited before. */
  unshift(job: Job): void {
    if (job.list !== undefined) throw new TypeError("Job waits in a list already");
    job.list = this;
    job.previous = undefined;
    job.next = this.first;
    if (this.first === undefined) this.#last = job;
    else this.first.previous = job;
    this.first = job;
    this.#length++;
  }

  /** Takes a job out; false when it does not wait here. */
  remove(job: Job): boolean {
    if (job.list !== this) return false;
    if (job.previous === undefined) this.first = job.next;
    else job.previous.next = job.next;
    if (job.next === undefined) this.#last = job.previous;
    else job.next.previous = job.previous;
    job.list = undefined;
    job.previous = undefined;
    job.next = undefined;
    this.#length--;
    return true;
  }

  shift(): Job | undefined {
    const job = this.first;
    if (job !== undefined) this.remove(job);
    return job;
  }
}
