/**
 * Lets operations on the same models happen one after the other, in the order they were asked for, and those on
 * different models side by side. An operation takes all its models at once, so that none waits for half of another's.
 */
export class OperationOrder {
  /** The end of the last operation asked for, by model. */
  readonly #ends = new Map<string, Promise<void>>();

  /** Models with an operation that has not ended. */
  names(): string[] {
    return [...this.#ends.keys()];
  }

  /** Runs an operation when all those asked for before that share a model with it have ended. */
  async run<Value>(names: Iterable<string>, operation: () => Promise<Value>): Promise<Value> {
    const own = [...names];
    const before = Promise.all(own.map((name) => this.#ends.get(name)));
    const result = before.then(operation);
    const end = result.then(() => {}, () => {});
    for (const name of own) this.#ends.set(name, end);
    try {
      return await result;
    } finally {
      for (const name of own) if (this.#ends.get(name) === end) this.#ends.delete(name);
    }
  }
}
