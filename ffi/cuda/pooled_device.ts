import { BlockCache } from "./block_cache.ts";
import { DeviceCalls, type DeviceObject } from "./device_calls.ts";
import { CudaError } from "./error.ts";
import type { CudaExecution } from "./execution_library.ts";
import type { ByteBudget } from "./memory_budget.ts";

/** What models on a device share. */
export interface DevicePools {
  /** Pinned memory of the machine, for all devices together. */
  readonly pinned: ByteBudget;
  /** Bytes of free memory of the device that are kept for the next who needs some. */
  readonly deviceByteSize: number;
}

interface DeviceBlock extends DeviceObject {
  readonly byteSize: number;
}

const OUT_OF_MEMORY = 2;

/**
 * Calls on one device whose memory comes out of pools. Freed memory of the device is used again, so free it only when
 * no work that uses it is left on any stream.
 */
export class PooledDevice extends DeviceCalls {
  readonly #pinned: ByteBudget;
  readonly #cache: BlockCache<DeviceBlock>;
  /** Sizes by address, of pinned memory and of memory of the device. */
  readonly #pinnedSizes = new Map<bigint, number>();
  readonly #deviceSizes = new Map<bigint, number>();

  constructor(cuda: CudaExecution, deviceId: number, { pinned, deviceByteSize }: DevicePools) {
    super(cuda, deviceId);
    this.#pinned = pinned;
    this.#cache = new BlockCache(deviceByteSize);
  }

  override async allocate(byteSize: number): Promise<DeviceObject> {
    const found = this.#cache.take(byteSize);
    const object = found ?? await this.#allocateOrFree(byteSize);
    this.#deviceSizes.set(object.address, found?.byteSize ?? byteSize);
    return object;
  }

  override async allocatePinned(byteSize: number): Promise<DeviceObject> {
    if (!this.#pinned.take(byteSize)) {
      const { usedBytes, totalBytes } = this.#pinned;
      throw new CudaError(
        `The pool of pinned memory has ${totalBytes} bytes, ${usedBytes} of them in use ` +
          `(--pinned-memory-pool-byte-size)`,
        OUT_OF_MEMORY,
      );
    }
    try {
      const object = await super.allocatePinned(byteSize);
      this.#pinnedSizes.set(object.address, byteSize);
      return object;
    } catch (error) {
      this.#pinned.give(byteSize);
      throw error;
    }
  }

  override async destroy(objects: readonly DeviceObject[]): Promise<void> {
    const leaving: DeviceObject[] = [];
    for (const object of objects) {
      const byteSize = this.#deviceSizes.get(object.address);
      if (object.destroy !== "cudaFree" || byteSize === undefined) leaving.push(object);
      else {
        this.#deviceSizes.delete(object.address);
        leaving.push(...this.#cache.keep({ ...object, byteSize }));
      }
    }
    try {
      await super.destroy(leaving);
    } finally {
      for (const { address, destroy } of leaving) {
        if (destroy === "cudaFreeHost") this.#giveBack(address);
      }
    }
  }

  /** Frees the memory of the device that is kept. @throws CudaError */
  async trim(): Promise<void> {
    await super.destroy(this.#cache.clear());
  }

  /** Memory that is kept must not keep somebody else from getting some. */
  async #allocateOrFree(byteSize: number): Promise<DeviceObject> {
    try {
      return await super.allocate(byteSize);
    } catch (error) {
      const isFull = error instanceof CudaError && error.status === OUT_OF_MEMORY;
      if (!isFull || this.#cache.byteSize === 0) throw error;
      await this.trim();
      return await super.allocate(byteSize);
    }
  }

  #giveBack(address: bigint): void {
    const byteSize = this.#pinnedSizes.get(address);
    if (byteSize === undefined) return;
    this.#pinnedSizes.delete(address);
    this.#pinned.give(byteSize);
  }
}
