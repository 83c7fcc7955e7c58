/** Lets at most so many jobs run at the same time; the others wait in order. */
export class LoadSlots {
  /** Below 0 while more run than there are slots, because one that was lent was taken back. */
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = Math.max(1, count);
  }

  /** Runs a job as soon as a slot is free. */
  async run<Value>(job: () => Promise<Value>): Promise<Value> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await job();
    } finally {
      this.#release();
    }
  }

  /** One slot more until it is disposed: for a job that one of the running ones may wait for. */
  lend(): Disposable {
    this.#release();
    return { [Symbol.dispose]: () => void this.#free-- };
  }

  #release(): void {
    this.#free++;
    if (this.#free <= 0) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#free--;
    next();
  }
}
