import { setImmediate } from "node:timers";
import type { Clock, Timer } from "./clock.ts";

interface FakeTimer {
  readonly atMs: number;
  readonly sequence: number;
  readonly callback: () => void;
}

/** Virtual time for tests: nothing happens until `advance` is called. */
export class FakeClock implements Clock {
  #nowMs = 0;
  #sequence = 0;
  readonly #startWallMs: number;
  readonly #timers = new Set<FakeTimer>();

  constructor(startWallMs = 1_700_000_000_000) {
    this.#startWallMs = startWallMs;
  }

  /** Timers that are armed; 0 means that nothing waits for time to pass. */
  get timerCount(): number {
    return this.#timers.size;
  }

  now(): number {
    return this.#nowMs;
  }

  wallNow(): number {
    return this.#startWallMs + Math.floor(this.#nowMs);
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = {
      atMs: this.#nowMs + Math.max(0, delayMs),
      sequence: this.#sequence++,
      callback,
    };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  /** Lets everything run that needs no time to pass: promises and what follows from them. */
  async settle(): Promise<void> {
    for (let round = 0; round < 3; round++) {
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  /** Lets virtual time pass, firing timers in order and settling after each. */
  async advance(durationMs: number): Promise<void> {
    const endMs = this.#nowMs + durationMs;
    await this.settle();
    for (;;) {
      const timer = this.#earliest();
      if (timer === undefined || timer.atMs > endMs) break;
      this.#timers.delete(timer);
      this.#nowMs = Math.max(this.#nowMs, timer.atMs);
      timer.callback();
      await this.settle();
    }
    this.#nowMs = endMs;
  }

  #earliest(): FakeTimer | undefined {
    let best: FakeTimer | undefined;
    for (const timer of this.#timers) {
      if (
        best === undefined || timer.atMs < best.atMs ||
        (timer.atMs === best.atMs && timer.sequence < best.sequence)
      ) best = timer;
    }
    return best;
  }
}
