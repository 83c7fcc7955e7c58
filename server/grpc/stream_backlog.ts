/** A request as it came, and what to call when no byte of it is needed any more. */
export interface WaitingMessage {
  readonly message: Uint8Array;
  readonly release: () => void;
}

/**
 * Requests that came although their stream was held back already: a client may send as much as the flow control had
 * granted before, and that may be a hundred thousand small ones.
 */
export class StreamBacklog {
  #messages: WaitingMessage[] = [];
  #taken = 0;

  get isEmpty(): boolean {
    return this.#messages.length === 0;
  }

  add(message: WaitingMessage): void {
    this.#messages.push(message);
  }

  /** The one that has waited for the longest. */
  take(): WaitingMessage | undefined {
    const next = this.#messages[this.#taken];
    if (next === undefined) return undefined;
    // Taking the first out of a long array moves all others.
    if (++this.#taken * 2 >= this.#messages.length) {
      this.#messages = this.#messages.slice(this.#taken);
      this.#taken = 0;
    }
    return next;
  }

  /** Drops all of them. */
  clear(): void {
    for (let next = this.take(); next !== undefined; next = this.take()) next.release();
  }
}
