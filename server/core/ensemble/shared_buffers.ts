/**
 * Buffers with several users: freed once, when the last of them has let go. Steps may answer with views of their
 * inputs, so each answer keeps the inputs it was made from.
 */
export class SharedBuffers {
  readonly #free: () => void;
  #count = 1;

  /** The creator is the first user. */
  constructor(free: () => void) {
    this.#free = free;
  }

  retain(): void {
    if (this.#count === 0) throw new TypeError("Buffers were freed");
    this.#count++;
  }

  release(): void {
    if (this.#count === 0) throw new TypeError("Buffers were freed");
    if (--this.#count === 0) this.#free();
  }
}
