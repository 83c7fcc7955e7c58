import { clearImmediate, setImmediate } from "node:timers";
import type { Clock, Timer } from "./clock.ts";

/** `setTimeout` fires about this much late (measured on Deno 2.9), and never before 2 ms. */
const TIMEOUT_LATENESS_MS = 1.1;
const SHORTEST_TIMEOUT_MS = 1;

/**
 * The real clock. Timers are at most about a millisecond late and never early; delays shorter than `setTimeout` can
 * do are waited for by turns of the event loop, so a queue delay of 200 µs is one.
 */
export function createSystemClock(): Clock {
  return {
    now: () => performance.now(),
    wallNow: () => Date.now(),
    setTimer: (delayMs, callback) => new SystemTimer(performance.now() + delayMs, callback),
  };
}

class SystemTimer implements Timer {
  readonly #atMs: number;
  readonly #callback: () => void;
  #timeout: ReturnType<typeof setTimeout> | undefined;
  #immediate: ReturnType<typeof setImmediate> | undefined;

  constructor(atMs: number, callback: () => void) {
    this.#atMs = atMs;
    this.#callback = callback;
    this.#arm();
  }

  cancel(): void {
    if (this.#timeout !== undefined) clearTimeout(this.#timeout);
    if (this.#immediate !== undefined) clearImmediate(this.#immediate);
    this.#timeout = undefined;
    this.#immediate = undefined;
  }

  readonly #check = (): void => {
    this.#timeout = undefined;
    this.#immediate = undefined;
    if (performance.now() >= this.#atMs) this.#callback();
    else this.#arm();
  };

  #arm(): void {
    const restMs = this.#atMs - performance.now();
    if (restMs > SHORTEST_TIMEOUT_MS + TIMEOUT_LATENESS_MS) {
      // The longest delay that setTimeout keeps; a longer one is armed again when it fired.
      const delayMs = Math.min(restMs - TIMEOUT_LATENESS_MS, 2 ** 31 - 1);
      this.#timeout = setTimeout(this.#check, Math.floor(delayMs));
      this.#timeout.unref();
    } else {
      this.#immediate = setImmediate(this.#check);
      this.#immediate.unref();
    }
  }
}
