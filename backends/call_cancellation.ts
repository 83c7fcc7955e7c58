import type { CancelSignal } from "../proto/infer.ts";

/**
 * The signal of a call that a model makes, or of a request in a process of its own, with its trigger: an
 * `AbortController` costs more than much of the call.
 */
export class CallCancellation implements CancelSignal {
  #isCancelled = false;
  readonly #listeners: (() => void)[] = [];

  get aborted(): boolean {
    return this.#isCancelled;
  }

  addEventListener(_type: "abort", listener: () => void): void {
    if (!this.#isCancelled && !this.#listeners.includes(listener)) this.#listeners.push(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    const index = this.#listeners.indexOf(listener);
    if (index >= 0) this.#listeners.splice(index, 1);
  }

  /** Tells each listener once. */
  cancel(): void {
    this.#isCancelled = true;
    for (const listener of this.#listeners.splice(0)) listener();
  }
}
