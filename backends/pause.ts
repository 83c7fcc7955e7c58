import type { CancelSignal } from "../proto/infer.ts";

/** Where waiting time comes from; tests pass a virtual clock. */
export interface Timers {
  /** Calls `callback` once after `delayMs` (≥ 0, fractions allowed). */
  setTimer(delayMs: number, callback: () => void): { cancel(): void };
}

/** `setTimeout` keeps no longer delay. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/** Real time. */
export const SYSTEM_TIMERS: Timers = {
  setTimer(delayMs, callback) {
    const timer = setTimeout(callback, Math.min(delayMs, LONGEST_TIMEOUT_MS));
    return { cancel: () => clearTimeout(timer) };
  },
};

/**
 * Waits, but not longer than until every signal has fired; a wait for nobody who could go, `[undefined]`, or for
 * nobody at all takes its full time.
 */
export function pause(
  delayMs: number,
  { timers, signals }: {
    readonly timers: Timers;
    readonly signals: readonly (CancelSignal | undefined)[];
  },
): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      timer.cancel();
      for (const signal of signals) signal?.removeEventListener("abort", onAbort);
      resolve();
    };
    const onAbort = () => {
      if (signals.length > 0 && signals.every((signal) => signal?.aborted)) end();
    };
    const timer = timers.setTimer(delayMs, end);
    for (const signal of signals) signal?.addEventListener("abort", onAbort);
    onAbort();
  });
}
