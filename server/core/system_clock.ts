import { clearImmediate, setImmediate } from "node:timers";
import type { Clock, Timer } from "./clock.ts";

/** `setTimeout(n)` fires about this much after n, for n of 1 and more (measured on Deno 2.9). */
const TIMEOUT_LATENESS_MS = 1.1;
/** The longest delay that `setTimeout` keeps; a longer one is armed again when it fired. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * The real clock. Timers are never early and at most about a millisecond late. What is shorter than `setTimeout` can
 * do is waited for by turns of the event loop, so that a queue delay of 200 µs is one; that takes processor time, but
 * for a millisecond at most, and only while nothing else is to do.
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
    if (restMs > TIMEOUT_LATENESS_MS) {
      const delayMs = Math.max(1, Math.ceil(restMs - TIMEOUT_LATENESS_MS));
      this.#timeout = setTimeout(this.#check, Math.min(delayMs, LONGEST_TIMEOUT_MS));
      this.#timeout.unref();
    } else {
      // Not unref'd: Deno never runs such an immediate. It keeps the process alive for about a millisecond.
      this.#immediate = setImmediate(this.#check);
    }
  }
}
