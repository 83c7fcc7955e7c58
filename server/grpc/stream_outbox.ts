/** From where on models are asked to wait. */
export interface OutboxLimits {
  readonly maxMessages: number;
  readonly maxBytes: number;
}

/** Counts what was sent and is not written yet, and says when whoever sends should wait. */
export class StreamOutbox {
  readonly #limits: OutboxLimits;
  #messageCount = 0;
  #byteSize = 0;
  #room: PromiseWithResolvers<void> | undefined;

  constructor(limits: OutboxLimits) {
    this.#limits = limits;
  }

  get isEmpty(): boolean {
    return this.#messageCount === 0;
  }

  /** True when it holds `factor` times what it should. */
  isOver(factor: number): boolean {
    const { maxMessages, maxBytes } = this.#limits;
    return this.#messageCount > factor * maxMessages || this.#byteSize > factor * maxBytes;
  }

  /** Settles when half of what may wait was written; undefined = send on. */
  get room(): Promise<void> | undefined {
    const { maxMessages, maxBytes } = this.#limits;
    if (this.#messageCount < maxMessages && this.#byteSize < maxBytes) return undefined;
    return (this.#room ??= Promise.withResolvers()).promise;
  }

  /** A message was sent. */
  add(byteSize: number): void {
    this.#messageCount++;
    this.#byteSize += byteSize;
  }

  /** It was written, or never will be. */
  subtract(byteSize: number): void {
    this.#messageCount--;
    this.#byteSize -= byteSize;
    const { maxMessages, maxBytes } = this.#limits;
    if (this.#messageCount <= maxMessages / 2 && this.#byteSize <= maxBytes / 2) this.close();
  }

  /** Nobody need wait any more. */
  close(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}
