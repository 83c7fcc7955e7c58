/** Values that one side pushes and the other iterates over, in order; ends with success or with an error. */
export class AsyncQueue<T> implements AsyncIterable<T> {
  readonly #values: T[] = [];
  #ended: { readonly reason: unknown } | undefined;
  #wake: (() => void) | undefined;

  push(value: T): void {
    this.#values.push(value);
    this.#wake?.();
  }

  /** Nothing more comes; an error is thrown after the values that are there. */
  end(reason?: unknown): void {
    this.#ended ??= { reason };
    this.#wake?.();
  }

  /** Takes out what nobody will iterate over any more. */
  drain(): T[] {
    return this.#values.splice(0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      while (this.#values.length > 0) yield this.#values.shift()!;
      if (this.#ended !== undefined) {
        if (this.#ended.reason !== undefined) throw this.#ended.reason;
        return;
      }
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
  }
}
