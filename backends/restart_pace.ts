const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 30_000;
const WINDOW_MS = 60_000;
const MAX_FAILURES = 5;

/** When a Worker that ended is started again: later each time, and not any more after 5 ends in 60 s (decision 1). */
export class RestartPace {
  readonly #failures: number[] = [];

  /** Counts an end. Returns the ms to wait before the next start; undefined = give up. */
  fail(nowMs: number): number | undefined {
    const failures = this.#failures;
    while (failures.length > 0 && failures[0]! <= nowMs - WINDOW_MS) failures.shift();
    failures.push(nowMs);
    if (failures.length > MAX_FAILURES) return undefined;
    return Math.min(FIRST_DELAY_MS * 2 ** (failures.length - 1), MAX_DELAY_MS);
  }
}
