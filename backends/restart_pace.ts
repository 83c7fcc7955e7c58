const FIRST_DELAY_MS = 100;
const LAST_DELAY_MS = 30_000;
/** So many restarts within this time are enough. */
const RESTART_COUNT_MAX = 5;
const WINDOW_MS = 60_000;

/** When a process or Worker that ended is started again: later each time, and not any more after 5 restarts in 60 s. */
export class RestartPace {
  readonly #restartsMs: number[] = [];
  #delayMs = FIRST_DELAY_MS;
  #lastMs = -Infinity;

  /** Counts an end. Returns the ms to wait before the next start; undefined = it stays down. */
  fail(nowMs: number): number | undefined {
    while (this.#restartsMs.length > 0 && this.#restartsMs[0]! <= nowMs - WINDOW_MS) {
      this.#restartsMs.shift();
    }
    if (this.#restartsMs.length >= RESTART_COUNT_MAX) return undefined;
    // One that lived for long has nothing to do with the ends before.
    if (nowMs - this.#lastMs > WINDOW_MS) this.#delayMs = FIRST_DELAY_MS;
    this.#restartsMs.push(nowMs);
    this.#lastMs = nowMs;
    const delayMs = this.#delayMs;
    this.#delayMs = Math.min(delayMs * 2, LAST_DELAY_MS);
    return delayMs;
  }
}
