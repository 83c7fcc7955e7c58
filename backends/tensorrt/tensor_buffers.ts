import type { DeviceCalls, DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import { allocateAligned, pointerAt, viewMemory } from "../../ffi/memory.ts";

/** Device memory of one tensor. */
export interface DeviceBuffer {
  readonly address: bigint;
  readonly byteSize: number;
}

/** Pinned memory that an input passes through. */
export interface StagingBuffer {
  readonly address: bigint;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

const MIN_STAGING_BYTE_SIZE = 4096;
const MIN_DEVICE_BYTE_SIZE = 256;

/** The memory of an instance's tensors: on the device, on the machine for shape tensors, pinned for inputs. */
export class TensorBuffers implements AsyncDisposable {
  readonly #device: DeviceCalls;
  readonly #buffers = new Map<string, { object: DeviceObject; byteSize: number }>();
  readonly #staging = new Map<string, { object: DeviceObject; buffer: StagingBuffer }>();
  readonly #host = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly #warn: (message: string) => void;
  #isPinned: boolean;

  constructor(
    device: DeviceCalls,
    { isPinned, warn }: { readonly isPinned: boolean; readonly warn: (message: string) => void },
  ) {
    this.#device = device;
    this.#isPinned = isPinned;
    this.#warn = warn;
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

  /** Pinned memory for an input; undefined where inputs are copied from where they are. */
  staging(
    name: string,
    byteSize: number,
  ): StagingBuffer | undefined | Promise<StagingBuffer | undefined> {
    if (!this.#isPinned) return undefined;
    const found = this.#staging.get(name);
    if (found !== undefined && found.buffer.bytes.byteLength >= byteSize) return found.buffer;
    return this.#growStaging(name, byteSize);
  }

  async #growStaging(name: string, byteSize: number): Promise<StagingBuffer | undefined> {
    let size = MIN_STAGING_BYTE_SIZE;
    while (size < byteSize) size *= 2;
    const old = this.#staging.get(name);
    this.#staging.delete(name);
    if (old !== undefined) await this.#device.destroy([old.object]);
    try {
      const object = await this.#device.allocatePinned(size);
      const bytes = new Uint8Array(viewMemory(pointerAt(object.address)!, size));
      const buffer = { address: object.address, bytes };
      this.#staging.set(name, { object, buffer });
      return buffer;
    } catch (error) {
      if (!(error instanceof CudaError)) throw error;
      this.#warn(`no pinned memory for input '${name}' (${size} bytes): ${error.message}`);
      this.#isPinned = false;
      return undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const objects = [...this.#buffers.values(), ...this.#staging.values()];
    this.#buffers.clear();
    this.#staging.clear();
    await this.#device.destroy(objects.map(({ object }) => object));
  }
}
