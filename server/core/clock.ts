/** A timer that can be called off. */
export interface Timer {
  cancel(): void;
}

/** Time as the core sees it; tests pass a virtual one. */
export interface Clock {
  /** Monotonic milliseconds with fraction. */
  now(): number;
  /** Wall-clock milliseconds since 1970. */
  wallNow(): number;
  /** Calls `callback` once after `delayMs` (≥ 0, fractions allowed). Does not keep the process alive. */
  setTimer(delayMs: number, callback: () => void): Timer;
}
