import { NativeHandle, type NativePointer } from "../handle.ts";
import { addressOfPointer, OutParameter } from "../memory.ts";
import { checkCuda } from "./error.ts";
import type { CudaLibraries, CudaRuntimeCalls } from "./symbols.ts";

/** Size of a `cudaIpcMemHandle_t`. */
export const IPC_HANDLE_BYTE_SIZE = 64;

const LAZY_PEER_ACCESS = 1;
const HOST_TO_DEVICE = 1;
const DEVICE_TO_HOST = 2;

/**
 * Device memory of another process, opened by its IPC handle. Every call blocks: the device is chosen per thread, so
 * the calls must not move to other threads.
 */
export class IpcMemory extends NativeHandle {
  readonly #runtime: CudaRuntimeCalls;
  readonly deviceId: number;
  /** Size of the allocation from its address on, as the driver knows it. */
  readonly byteSize: number;
  /** Of the device, in this process. */
  readonly address: bigint;

  private constructor(pointer: NativePointer, parts: IpcMemoryParts) {
    const { runtime, deviceId } = parts;
    super(pointer, (address) => {
      runtime.cudaSetDevice(deviceId);
      runtime.cudaIpcCloseMemHandle(address);
    });
    this.#runtime = runtime;
    this.deviceId = deviceId;
    this.byteSize = parts.byteSize;
    this.address = addressOfPointer(pointer);
  }

  /**
   * Opens the memory that `handle` stands for.
   * @param handle {@linkcode IPC_HANDLE_BYTE_SIZE} bytes.
   * @throws CudaError when it is no handle, belongs to another device, or was made in this process.
   */
  static open(
    { runtime, driver }: CudaLibraries,
    handle: Uint8Array<ArrayBuffer>,
    deviceId: number,
  ): IpcMemory {
    if (handle.byteLength !== IPC_HANDLE_BYTE_SIZE) {
      throw new TypeError(`Cannot open an IPC handle of ${handle.byteLength} bytes: expected 64`);
    }
    checkCuda(runtime, "cudaSetDevice", runtime.cudaSetDevice(deviceId));
    const address = new OutParameter();
    const status = runtime.cudaIpcOpenMemHandle(address.cell, handle, LAZY_PEER_ACCESS);
    checkCuda(runtime, "cudaIpcOpenMemHandle", status);
    const { pointer } = address;
    if (pointer === null) throw new TypeError("cudaIpcOpenMemHandle gave no address");
    const base = new OutParameter();
    const size = new OutParameter();
    const found = driver.cuMemGetAddressRange_v2(base.cell, size.cell, addressOfPointer(pointer));
    const byteSize = found === 0 ? Number(base.address + size.address - address.address) : 0;
    return new IpcMemory(pointer, { runtime, deviceId, byteSize });
  }

  /** Copies device memory from `offset` on into `target`, which decides how much. @throws CudaError */
  read(target: Uint8Array<ArrayBuffer>, offset: number): void {
    this.#useDevice();
    const size = BigInt(target.byteLength);
    const status = this.#runtime.copyToHost(target, this.#at(offset), size, DEVICE_TO_HOST);
    checkCuda(this.#runtime, "cudaMemcpy", status);
  }

  /** Copies `source` into device memory at `offset`. @throws CudaError */
  write(source: Uint8Array<ArrayBuffer>, offset: number): void {
    this.#useDevice();
    const size = BigInt(source.byteLength);
    const status = this.#runtime.copyToDevice(this.#at(offset), source, size, HOST_TO_DEVICE);
    checkCuda(this.#runtime, "cudaMemcpy", status);
  }

  #useDevice(): void {
    checkCuda(this.#runtime, "cudaSetDevice", this.#runtime.cudaSetDevice(this.deviceId));
  }

  #at(offset: number): Deno.PointerValue {
    return Deno.UnsafePointer.offset(this.pointer, offset);
  }
}

interface IpcMemoryParts {
  readonly runtime: CudaRuntimeCalls;
  readonly deviceId: number;
  readonly byteSize: number;
}
