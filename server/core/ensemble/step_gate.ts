import type { Clock, Timer } from "../clock.ts";

/** A start waits no longer than this; then it goes ahead although the step is full (scheduling.md §5.4). */
export const GATE_TIMEOUT_MS = 300_000;

/** How a step is limited. */
export interface StepGateOptions {
  /** `max_inflight_requests`, at least 1. */
  readonly limit: number;
  readonly clock: Clock;
  /** A start waited for too long and goes ahead. */
  readonly onTimeout: () => void;
}

interface Waiting {
  readonly start: () => void;
  readonly timer: Timer;
}

/** Lets at most so many requests of one step be unfinished, over all requests of the ensemble; the others wait in order. */
export class StepGate {
  readonly #options: StepGateOptions;
  readonly #waiting = new Set<Waiting>();
  #count = 0;

  constructor(options: StepGateOptions) {
    this.#options = options;
  }

  /** Starts that wait. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  /** Unfinished requests. */
  get inflightCount(): number {
    return this.#count;
  }

  /** Takes a place if there is one. */
  tryEnter(): boolean {
    if (this.#count >= this.#options.limit) return false;
    this.#count++;
    return true;
  }

  /** Waits for a place; `start` is called when it was taken. Returns how to give up before that. */
  wait(start: () => void): () => void {
    const timer = this.#options.clock.setTimer(GATE_TIMEOUT_MS, () => {
      this.#options.onTimeout();
      this.#admit(waiting);
    });
    const waiting = { start, timer };
    this.#waiting.add(waiting);
    return () => {
      timer.cancel();
      this.#waiting.delete(waiting);
    };
  }

  /** Gives a place back. */
  leave(): void {
    this.#count--;
    if (this.#count >= this.#options.limit) return;
    for (const waiting of this.#waiting) {
      this.#admit(waiting);
      return;
    }
  }

  #admit(waiting: Waiting): void {
    waiting.timer.cancel();
    this.#waiting.delete(waiting);
    this.#count++;
    waiting.start();
  }
}
