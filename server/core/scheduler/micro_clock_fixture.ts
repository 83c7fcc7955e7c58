import assert from "node:assert/strict";
import type { Clock, Timer } from "../clock.ts";

/** Time that passes only when told to, with nothing but microtasks in between. */
export class MicroClock implements Clock {
  #nowMs = 0;
  #timers: { atMs: number; callback: () => void }[] = [];

  get timerCount(): number {
    return this.#timers.length;
  }

  now(): number {
    return this.#nowMs;
  }

  wallNow(): number {
    return this.#nowMs;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = { atMs: this.#nowMs + Math.max(0, delayMs), callback };
    let index = this.#timers.length;
    while (index > 0 && this.#timers[index - 1]!.atMs > timer.atMs) index--;
    this.#timers.splice(index, 0, timer);
    return {
      cancel: () => {
        const at = this.#timers.indexOf(timer);
        if (at >= 0) this.#timers.splice(at, 1);
      },
    };
  }

  async settle(): Promise<void> {
    for (let round = 0; round < 5; round++) await undefined;
  }

  async advance(durationMs: number): Promise<void> {
    const endMs = this.#nowMs + durationMs;
    for (;;) {
      await this.settle();
      const timer = this.#timers[0];
      if (timer === undefined || timer.atMs > endMs) break;
      this.#timers.shift();
      this.#nowMs = timer.atMs;
      timer.callback();
    }
    this.#nowMs = endMs;
  }
}

/** A signal of a client, which can tell whether it is listened to. */
export class FakeSignal {
  aborted = false;
  #listener: (() => void) | undefined;

  addEventListener(_type: "abort", listener: () => void): void {
    assert.equal(this.#listener, undefined);
    this.#listener = listener;
  }

  removeEventListener(): void {
    this.#listener = undefined;
  }

  get isWatched(): boolean {
    return this.#listener !== undefined;
  }

  abort(): void {
    this.aborted = true;
    this.#listener?.();
  }
}
