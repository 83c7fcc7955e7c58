import type { DeviceCalls, DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import { pointerAt, viewMemory } from "../../ffi/memory.ts";
import type { DeviceMemory } from "../device_list.ts";

const MIN_BYTE_SIZE = 4096;

/** Memory of this machine that a GPU reaches without a detour. */
export interface PinnedBlock {
  readonly object: DeviceObject;
  /** A power of two. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Where the pinned memory of one instance comes from: within what all models together may have. */
export class PinnedMemory {
  readonly #device: DeviceCalls;
  readonly #budget: DeviceMemory["pinned"] | undefined;
  readonly #warn: (message: string) => void;
  #isWarned = false;
  /** CUDA had none left: asking again would cost every run. */
  #isExhausted = false;

  constructor(
    device: DeviceCalls,
    { budget, warn }: {
      /** Absent = without bound. */
      readonly budget: DeviceMemory["pinned"] | undefined;
      readonly warn: (message: string) => void;
    },
  ) {
    this.#device = device;
    this.#budget = budget;
    this.#warn = warn;
  }

  /** A block of at least that size; undefined when there is none left. */
  async allocate(byteSize: number): Promise<PinnedBlock | undefined> {
    const size = PinnedMemory.sizeFor(byteSize);
    if (this.#isExhausted) return undefined;
    if (this.#budget?.take(size) === false) {
      const { usedBytes, totalBytes } = this.#budget;
      this.#warnOnce(size, `${usedBytes} of ${totalBytes} bytes are taken`);
      return undefined;
    }
    try {
      const object = await this.#device.allocatePinned(size);
      const bytes = new Uint8Array(viewMemory(pointerAt(object.address)!, size));
      return { object, bytes };
    } catch (error) {
      this.#budget?.give(size);
      if (!(error instanceof CudaError)) throw error;
      this.#isExhausted = true;
      this.#warnOnce(size, error.message);
      return undefined;
    }
  }

  async free(blocks: readonly PinnedBlock[]): Promise<void> {
    for (const { bytes } of blocks) this.#budget?.give(bytes.byteLength);
    await this.#device.destroy(blocks.map(({ object }) => object));
  }

  /** The next power of two. */
  static sizeFor(byteSize: number): number {
    let size = MIN_BYTE_SIZE;
    while (size < byteSize) size *= 2;
    return size;
  }

  #warnOnce(byteSize: number, reason: string): void {
    if (this.#isWarned) return;
    this.#isWarned = true;
    this.#warn(`copies go without pinned memory, ${byteSize} bytes are not to be had: ${reason}`);
  }
}
