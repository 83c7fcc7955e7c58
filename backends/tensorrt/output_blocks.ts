import { addressOf } from "../../ffi/memory.ts";
import { type PinnedBlock, PinnedMemory } from "./pinned_memory.ts";

/** Free bytes that are kept for later runs. */
const MAX_FREE_BYTE_SIZE = 64 * 1024 * 1024;

/** Memory of this machine that outputs are copied to. */
export interface OutputBlock {
  readonly address: bigint;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Gives the block back; once. */
  readonly release: () => void;
}

/**
 * Blocks of pinned memory by size; a block is out until the response that shows it has been sent. Without pinned
 * memory, or when there is none left, each run gets fresh memory of its own.
 */
export class OutputBlocks implements AsyncDisposable {
  readonly #pinned: PinnedMemory | undefined;
  readonly #free = new Map<number, PinnedBlock[]>();
  #freeByteSize = 0;
  #isDisposed = false;

  constructor(pinned: PinnedMemory | undefined) {
    this.#pinned = pinned;
  }

  /** A block of at least `byteSize` bytes, its view exactly as long. */
  take(byteSize: number): OutputBlock | Promise<OutputBlock> {
    if (this.#pinned === undefined) return ordinaryBlock(byteSize);
    const block = this.#free.get(PinnedMemory.sizeFor(byteSize))?.pop();
    if (block === undefined) return this.#allocate(this.#pinned, byteSize);
    this.#freeByteSize -= block.bytes.byteLength;
    return this.#lend(block, byteSize);
  }

  async #allocate(pinned: PinnedMemory, byteSize: number): Promise<OutputBlock> {
    const block = await pinned.allocate(byteSize);
    return block === undefined ? ordinaryBlock(byteSize) : this.#lend(block, byteSize);
  }

  #lend(block: PinnedBlock, byteSize: number): OutputBlock {
    let isReleased = false;
    return {
      address: block.object.address,
      bytes: block.bytes.subarray(0, byteSize),
      release: () => {
        if (isReleased) return;
        isReleased = true;
        this.#takeBack(block);
      },
    };
  }

  #takeBack(block: PinnedBlock): void {
    const size = block.bytes.byteLength;
    if (this.#isDisposed || this.#freeByteSize + size > MAX_FREE_BYTE_SIZE) {
      // Nobody waits for it, and a failure has been told by the calls before.
      this.#pinned?.free([block]).catch(() => {});
      return;
    }
    const free = this.#free.get(size);
    if (free === undefined) this.#free.set(size, [block]);
    else free.push(block);
    this.#freeByteSize += size;
  }

  /** Frees the blocks that are in; those that are out when they come back. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    const blocks = [...this.#free.values()].flat();
    this.#free.clear();
    await this.#pinned?.free(blocks);
  }
}

function ordinaryBlock(byteSize: number): OutputBlock {
  const bytes = new Uint8Array(new ArrayBuffer(Math.max(byteSize, 1)));
  return { address: addressOf(bytes), bytes: bytes.subarray(0, byteSize), release: () => {} };
}
