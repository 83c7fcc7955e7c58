/** A block of memory that may be used again. */
export interface CachedBlock {
  readonly byteSize: number;
}

/** A block may be so many times larger than what is asked for. */
const WASTE_MAX = 2;

/** Free blocks of memory, kept for whoever needs one of about that size; the oldest leave first. */
export class BlockCache<Block extends CachedBlock> {
  readonly #maxBytes: number;
  /** In the order in which they came. */
  readonly #blocks: Block[] = [];
  #byteSize = 0;

  /** Keeps at most `maxBytes`; 0 = nothing. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of the blocks that wait. */
  get byteSize(): number {
    return this.#byteSize;
  }

  /** The smallest block that is large enough and not wasteful; undefined when there is none. */
  take(byteSize: number): Block | undefined {
    let best = -1;
    for (const [index, block] of this.#blocks.entries()) {
      if (block.byteSize < byteSize || block.byteSize > byteSize * WASTE_MAX) continue;
      if (best < 0 || block.byteSize < this.#blocks[best]!.byteSize) best = index;
    }
    return best < 0 ? undefined : this.#remove(best);
  }

  /** Keeps a free block. @returns the blocks that have to be freed to make room, which may be that very block. */
  keep(block: Block): Block[] {
    if (block.byteSize > this.#maxBytes) return [block];
    this.#blocks.push(block);
    this.#byteSize += block.byteSize;
    const leaving: Block[] = [];
    while (this.#byteSize > this.#maxBytes) leaving.push(this.#remove(0));
    return leaving;
  }

  /** Gives all blocks away. */
  clear(): Block[] {
    this.#byteSize = 0;
    return this.#blocks.splice(0);
  }

  #remove(index: number): Block {
    const [block] = this.#blocks.splice(index, 1);
    this.#byteSize -= block!.byteSize;
    return block!;
  }
}
