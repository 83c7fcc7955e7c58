import type { Clock } from "../clock.ts";
import type { Sequence } from "./sequence.ts";
import { WakeTimer } from "./wake_timer.ts";

/**
 * Sequences that hold a slot and have nothing to do, the longest idle first. A sequence with a request that waits or
 * runs is not idle: its client may be waiting for the answer (scenarios.md D29).
 */
export class IdleSequences {
  readonly #clock: Clock;
  readonly #maxIdleMs: number;
  readonly #onExpired: (sequence: Sequence) => void;
  readonly #sequences = new Set<Sequence>();
  readonly #timer: WakeTimer;

  /** @param onExpired called for a sequence that has been idle for too long; it is taken out before. */
  constructor(
    options: { readonly clock: Clock; readonly maxIdleMs: number },
    onExpired: (sequence: Sequence) => void,
  ) {
    this.#clock = options.clock;
    this.#maxIdleMs = options.maxIdleMs;
    this.#onExpired = onExpired;
    this.#timer = new WakeTimer(options.clock, () => this.#expire());
  }

  add(sequence: Sequence): void {
    sequence.idleSinceMs = this.#clock.now();
    // All have the same patience, so that the order of falling idle is that of running out of it.
    this.#sequences.delete(sequence);
    this.#sequences.add(sequence);
    this.#timer.arm(sequence.idleSinceMs + this.#maxIdleMs);
  }

  remove(sequence: Sequence): void {
    this.#sequences.delete(sequence);
  }

  cancelTimer(): void {
    this.#timer.cancel();
  }

  #expire(): void {
    const nowMs = this.#clock.now();
    for (const sequence of this.#sequences) {
      const atMs = sequence.idleSinceMs + this.#maxIdleMs;
      if (atMs > nowMs) return this.#timer.arm(atMs);
      this.#sequences.delete(sequence);
      this.#onExpired(sequence);
    }
  }
}
