import type { DeviceCalls, DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import { addressOf, pointerAt, viewMemory } from "../../ffi/memory.ts";

/** Smallest block, and the free bytes that are kept for later runs. */
const MIN_BYTE_SIZE = 4096;
const MAX_FREE_BYTE_SIZE = 64 * 1024 * 1024;

/** Memory of this machine that outputs are copied to. */
export interface OutputBlock {
  readonly address: bigint;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Gives the block back; once. */
  readonly release: () => void;
}

interface PinnedBlock {
  readonly object: DeviceObject;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/**
 * Blocks of pinned memory by size; a block is out until the response that shows it has been sent. Without pinned
 * memory, or when there is none left, each run gets fresh memory of its own.
 */
export class OutputBlocks implements AsyncDisposable {
  readonly #device: DeviceCalls;
  readonly #isPinned: boolean;
  readonly #warn: (message: string) => void;
  readonly #free = new Map<number, PinnedBlock[]>();
  #freeByteSize = 0;
  #isDisposed = false;
  #hasWarned = false;

  constructor(
    device: DeviceCalls,
    { isPinned, warn }: { readonly isPinned: boolean; readonly warn: (message: string) => void },
  ) {
    this.#device = device;
    this.#isPinned = isPinned;
    this.#warn = warn;
  }

  /** A block of at least `byteSize` bytes, its view exactly as long. */
  take(byteSize: number): OutputBlock | Promise<OutputBlock> {
    if (!this.#isPinned) return ordinaryBlock(byteSize);
    const size = sizeClass(byteSize);
    const block = this.#free.get(size)?.pop();
    if (block === undefined) return this.#allocate(size, byteSize);
    this.#freeByteSize -= size;
    return this.#lend(block, byteSize);
  }

  async #allocate(size: number, byteSize: number): Promise<OutputBlock> {
    try {
      const object = await this.#device.allocatePinned(size);
      const bytes = new Uint8Array(viewMemory(pointerAt(object.address)!, size));
      return this.#lend({ object, bytes }, byteSize);
    } catch (error) {
      if (!(error instanceof CudaError)) throw error;
      // Each further output that goes without would say the same.
      if (!this.#hasWarned) {
        this.#warn(`no pinned memory for an output of ${byteSize} bytes: ${error.message}`);
      }
      this.#hasWarned = true;
      return ordinaryBlock(byteSize);
    }
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
      this.#device.destroy([block.object]).catch(() => {});
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
    await this.#device.destroy(blocks.map(({ object }) => object));
  }
}

function ordinaryBlock(byteSize: number): OutputBlock {
  const bytes = new Uint8Array(new ArrayBuffer(Math.max(byteSize, 1)));
  return { address: addressOf(bytes), bytes: bytes.subarray(0, byteSize), release: () => {} };
}

/** The next power of two. */
function sizeClass(byteSize: number): number {
  let size = MIN_BYTE_SIZE;
  while (size < byteSize) size *= 2;
  return size;
}
