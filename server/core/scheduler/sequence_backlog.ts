import type { Clock } from "../clock.ts";
import { DeadlineHeap } from "./deadline_heap.ts";
import type { Job } from "./job.ts";
import type { Sequence } from "./sequence.ts";
import { WakeTimer } from "./wake_timer.ts";

/** Sequences that wait for a slot, in their order of arrival, with their deadlines (scheduling.md §3.2 and §3.3). */
export class SequenceBacklog {
  readonly #clock: Clock;
  readonly #onExpired: (sequence: Sequence) => void;
  readonly #sequences = new Set<Sequence>();
  readonly #deadlines = new DeadlineHeap();
  readonly #timer: WakeTimer;

  /** @param onExpired called for a sequence that has waited too long; it is taken out before. */
  constructor(clock: Clock, onExpired: (sequence: Sequence) => void) {
    this.#clock = clock;
    this.#onExpired = onExpired;
    this.#timer = new WakeTimer(clock, () => this.#expire());
  }

  get size(): number {
    return this.#sequences.size;
  }

  /** Requests of all sequences that wait here; counts them one by one. */
  countRequests(): number {
    let count = 0;
    for (const sequence of this.#sequences) count += sequence.length;
    return count;
  }

  /** A request came for a sequence that waits here, or that begins to. */
  add(sequence: Sequence, job: Job): void {
    this.#sequences.add(sequence);
    if (job.timeoutUs <= 0) return;
    job.deadlineMs = job.queueStartMs + job.timeoutUs / 1000;
    this.#deadlines.add(job);
    this.#timer.arm(job.deadlineMs);
  }

  /** The sequence that has waited for the longest, of those that wait for nothing but a slot. */
  first(): Sequence | undefined {
    for (const sequence of this.#sequences) {
      if (sequence.predecessor === undefined) return sequence;
    }
    return undefined;
  }

  /** Takes a sequence out, to be served or dropped; its requests have no deadline any more. */
  remove(sequence: Sequence): void {
    this.#sequences.delete(sequence);
    for (let job = sequence.first; job !== undefined; job = job.next) {
      this.#deadlines.remove(job);
      job.deadlineMs = Infinity;
    }
    if (this.#deadlines.length === 0) this.#timer.cancel();
  }

  #expire(): void {
    const nowMs = this.#clock.now();
    for (;;) {
      const job = this.#deadlines.earliest;
      if (job === undefined) return;
      if (job.deadlineMs > nowMs) return this.#timer.arm(job.deadlineMs);
      const sequence = job.sequence as Sequence;
      this.remove(sequence);
      this.#onExpired(sequence);
    }
  }
}
