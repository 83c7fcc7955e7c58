/** Sequences that never end must not fill the memory: beyond so many the oldest is forgotten. */
const SEQUENCES_MAX = 1_000_000;

/** A number per correlation id, for test models; what was noted longest ago is forgotten first. */
export class SequenceMemory {
  readonly #numbers = new Map<bigint | string, number>();

  get(id: bigint | string): number | undefined {
    return this.#numbers.get(id);
  }

  /** Notes a number, as the newest. */
  set(id: bigint | string, value: number): void {
    this.#numbers.delete(id);
    this.#numbers.set(id, value);
    if (this.#numbers.size <= SEQUENCES_MAX) return;
    const [oldest] = this.#numbers.keys();
    if (oldest !== undefined) this.#numbers.delete(oldest);
  }

  delete(id: bigint | string): void {
    this.#numbers.delete(id);
  }

  clear(): void {
    this.#numbers.clear();
  }
}
