import { CallList } from "../call_list.ts";
import { addressOf, OutParameter, readCString } from "../memory.ts";
import { CudaError } from "./error.ts";
import type { CudaExecution, CudaFunction } from "./execution_library.ts";

/** Something of a device that one call frees. */
export interface DeviceObject {
  readonly address: bigint;
  readonly destroy: CudaFunction;
}

const NON_BLOCKING_STREAM = 1n;
const PORTABLE = 1n;
const BLOCKING_SYNC = 1n;
const NO_TIMING = 2n;
const MAJOR_ATTRIBUTE = 75n;
const MINOR_ATTRIBUTE = 76n;

/**
 * Calls of the CUDA runtime on one device. Each goes to the blocking pool as a list that begins with `cudaSetDevice`:
 * the device is chosen per thread, and threads of the pool change (native-abi.md §0).
 */
export class DeviceCalls {
  readonly cuda: CudaExecution;
  readonly deviceId: number;

  constructor(cuda: CudaExecution, deviceId: number) {
    this.cuda = cuda;
    this.deviceId = deviceId;
  }

  /** Starts a list: chooses the device, and forgets what went wrong on that thread before. */
  begin(list: CallList): void {
    this.add(list, "cudaSetDevice", [BigInt(this.deviceId)]);
    const { addresses } = this.cuda;
    list.add("cudaGetLastError", addresses.cudaGetLastError, { args: [], expect: "anything" });
  }

  add(list: CallList, name: CudaFunction, args: readonly bigint[]): void {
    const address = this.cuda.addresses[name];
    if (address === 0n) throw new CudaError(`This CUDA runtime has no ${name}`, 0);
    list.add(name, address, { args });
  }

  /** Runs a list that was begun here. @throws CudaError for the first call of CUDA that failed. */
  async run(list: CallList): Promise<void> {
    const failed = await list.run(this.cuda.runner);
    if (failed === undefined) return;
    throw this.failure(failed.name, Number(failed.result & 0xffff_ffffn));
  }

  /** The error of a call, with the runtime's words. */
  failure(name: string, status: number): CudaError {
    const { cudaGetErrorName, cudaGetErrorString } = this.cuda.calls;
    const code = readCString(cudaGetErrorName(status));
    const text = readCString(cudaGetErrorString(status));
    const where = `on device ${this.deviceId}`;
    return new CudaError(`${name} failed with ${code} (${status}) ${where}: ${text}`, status);
  }

  /** Compute capability such as `8.6`. @throws CudaError */
  async computeCapability(): Promise<string> {
    const values = new Int32Array(new ArrayBuffer(8));
    const list = new CallList();
    list.keep(values);
    this.begin(list);
    const device = BigInt(this.deviceId);
    this.add(list, "cudaDeviceGetAttribute", [addressOf(values), MAJOR_ATTRIBUTE, device]);
    this.add(list, "cudaDeviceGetAttribute", [addressOf(values) + 4n, MINOR_ATTRIBUTE, device]);
    await this.run(list);
    return `${values[0]}.${values[1]}`;
  }

  /** Device memory; its address is a multiple of 256. @throws CudaError */
  allocate(byteSize: number): Promise<DeviceObject> {
    return this.#create("cudaMalloc", "cudaFree", [BigInt(Math.max(byteSize, 1))]);
  }

  /** Memory of this machine that the device reaches without a detour. @throws CudaError */
  allocatePinned(byteSize: number): Promise<DeviceObject> {
    const args = [BigInt(Math.max(byteSize, 1)), PORTABLE];
    return this.#create("cudaHostAlloc", "cudaFreeHost", args);
  }

  /** A stream that does not wait for the default one. @throws CudaError */
  async createStream(priority: "default" | "max" | "min" = "default"): Promise<DeviceObject> {
    let number = 0;
    if (priority !== "default") {
      const range = new Int32Array(new ArrayBuffer(8));
      const list = new CallList();
      list.keep(range);
      this.begin(list);
      const [least, greatest] = [addressOf(range), addressOf(range) + 4n];
      this.add(list, "cudaDeviceGetStreamPriorityRange", [least, greatest]);
      await this.run(list);
      number = range[priority === "min" ? 0 : 1]!;
    }
    const args = [NON_BLOCKING_STREAM, BigInt.asUintN(32, BigInt(number))];
    return await this.#create("cudaStreamCreateWithPriority", "cudaStreamDestroy", args);
  }

  /** An event without times. `busyWait`: who waits for it spins instead of sleeping. @throws CudaError */
  createEvent({ busyWait }: { readonly busyWait: boolean }): Promise<DeviceObject> {
    const flags = busyWait ? NO_TIMING : NO_TIMING | BLOCKING_SYNC;
    return this.#create("cudaEventCreateWithFlags", "cudaEventDestroy", [flags]);
  }

  /** Frees the objects in reverse order, all of them even if one cannot be freed. @throws CudaError for the first. */
  async destroy(objects: readonly DeviceObject[]): Promise<void> {
    if (objects.length === 0) return;
    const list = new CallList();
    this.begin(list);
    for (const { address, destroy } of objects.toReversed()) {
      list.add(destroy, this.cuda.addresses[destroy], { args: [address], expect: "anything" });
    }
    await this.run(list);
    for (let index = 2; index < list.length; index++) {
      const status = Number(list.result(index) & 0xffff_ffffn);
      if (status !== 0) throw this.failure(objects.at(1 - index)!.destroy, status);
    }
  }

  async #create(
    create: CudaFunction,
    destroy: CudaFunction,
    args: readonly bigint[],
  ): Promise<DeviceObject> {
    const out = new OutParameter();
    const list = new CallList();
    list.keep(out.cell);
    this.begin(list);
    this.add(list, create, [addressOf(out.cell), ...args]);
    await this.run(list);
    return { address: out.address, destroy };
  }
}
