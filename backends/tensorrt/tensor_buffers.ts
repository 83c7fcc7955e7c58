import type { DeviceCalls, DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { allocateAligned } from "../../ffi/memory.ts";
import type { PinnedBlock, PinnedMemory } from "./pinned_memory.ts";

/** Device memory of one tensor. */
export interface DeviceBuffer {
  readonly address: bigint;
  readonly byteSize: number;
}

const MIN_DEVICE_BYTE_SIZE = 256;

/** The memory of an instance's tensors: on the device, on the machine for shape tensors, pinned for inputs. */
export class TensorBuffers implements AsyncDisposable {
  readonly #device: DeviceCalls;
  readonly #buffers = new Map<string, { object: DeviceObject; byteSize: number }>();
  readonly #staging = new Map<string, PinnedBlock>();
  readonly #host = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly #pinned: PinnedMemory | undefined;

  /** Without `pinned`, inputs are copied from where they are. */
  constructor(device: DeviceCalls, pinned: PinnedMemory | undefined) {
    this.#device = device;
    this.#pinned = pinned;
  }

  /** The device memory of a tensor, if it has some. */
  find(name: string): DeviceBuffer | undefined {
    const found = this.#buffers.get(name);
    return found && { address: found.object.address, byteSize: found.byteSize };
  }

  /** Replaces the device memory of a tensor by some of this size. @throws CudaError when there is none left. */
  async grow(name: string, byteSize: number): Promise<DeviceBuffer> {
    const size = Math.max(byteSize, MIN_DEVICE_BYTE_SIZE);
    const object = await this.#device.allocate(size);
    const old = this.#buffers.get(name);
    this.#buffers.set(name, { object, byteSize: size });
    if (old !== undefined) await this.#device.destroy([old.object]);
    return { address: object.address, byteSize: size };
  }

  /** Memory of the machine for a shape tensor; it stays where it is. */
  host(name: string, byteSize: number): Uint8Array<ArrayBuffer> {
    const found = this.#host.get(name);
    if (found !== undefined && found.byteLength >= byteSize) return found;
    const bytes = allocateAligned(byteSize);
    this.#host.set(name, bytes);
    return bytes;
  }

  /** Pinned memory for an input; undefined where it is copied from where it is. */
  staging(
    name: string,
    byteSize: number,
  ): PinnedBlock | undefined | Promise<PinnedBlock | undefined> {
    if (this.#pinned === undefined) return undefined;
    const found = this.#staging.get(name);
    if (found !== undefined && found.bytes.byteLength >= byteSize) return found;
    return this.#growStaging(this.#pinned, name, byteSize);
  }

  async #growStaging(
    pinned: PinnedMemory,
    name: string,
    byteSize: number,
  ): Promise<PinnedBlock | undefined> {
    const old = this.#staging.get(name);
    this.#staging.delete(name);
    if (old !== undefined) await pinned.free([old]);
    const block = await pinned.allocate(byteSize);
    if (block !== undefined) this.#staging.set(name, block);
    return block;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const objects = [...this.#buffers.values()].map(({ object }) => object);
    const blocks = [...this.#staging.values()];
    this.#buffers.clear();
    this.#staging.clear();
    await this.#pinned?.free(blocks);
    await this.#device.destroy(objects);
  }
}
