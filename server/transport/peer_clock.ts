/** Most time that may pass from one look at the clock to the next. */
const MAX_STEP_MS = 1_000;

/**
 * The time by which peers are judged. It stands still while this process does: when one that was stopped, or busy for
 * long, goes on, what its peers sent meanwhile is still to be read.
 */
export class PeerClock {
  #nowMs: number;
  #lookedAtMs: number;

  constructor(nowMs: number) {
    this.#nowMs = this.#lookedAtMs = nowMs;
  }

  /** Looks at the clock, to be called several times a second; returns the time of the peers. */
  advance(nowMs: number): number {
    this.#nowMs += Math.min(nowMs - this.#lookedAtMs, MAX_STEP_MS);
    this.#lookedAtMs = nowMs;
    return this.#nowMs;
  }
}
