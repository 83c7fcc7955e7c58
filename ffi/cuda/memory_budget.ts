/** Bytes that many users share; whoever finds too few left does without. */
export interface ByteBudget {
  readonly totalBytes: number;
  readonly usedBytes: number;
  /** Takes bytes; false, and nothing is taken, when fewer are left. */
  take(byteSize: number): boolean;
  /** Gives back what was taken. */
  give(byteSize: number): void;
}

/** A budget of a fixed number of bytes. */
export class MemoryBudget implements ByteBudget {
  readonly totalBytes: number;
  #usedBytes = 0;

  constructor(totalBytes: number) {
    this.totalBytes = totalBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  take(byteSize: number): boolean {
    if (this.#usedBytes + byteSize > this.totalBytes) return false;
    this.#usedBytes += byteSize;
    return true;
  }

  give(byteSize: number): void {
    this.#usedBytes -= byteSize;
  }
}
