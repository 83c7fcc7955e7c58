import type { Clock, Timer } from "../clock.ts";

/**
 * One timer for everything that waits for time to pass: it fires at the earliest time it was asked for, or a little
 * before there is something to do, which is cheaper than arming it anew at every request.
 */
export class WakeTimer {
  readonly #clock: Clock;
  readonly #onWake: () => void;
  #timer: Timer | undefined;
  #atMs = Infinity;

  constructor(clock: Clock, onWake: () => void) {
    this.#clock = clock;
    this.#onWake = onWake;
  }

  /** Sees to it that it fires not later than `atMs`; Infinity asks for nothing. */
  arm(atMs: number): void {
    if (atMs >= this.#atMs) return;
    this.#timer?.cancel();
    this.#atMs = atMs;
    const delayMs = Math.max(0, atMs - this.#clock.now());
    this.#timer = this.#clock.setTimer(delayMs, this.#fire);
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#atMs = Infinity;
  }

  readonly #fire = (): void => {
    this.#timer = undefined;
    this.#atMs = Infinity;
    this.#onWake();
  };
}
