import { type CallGate, createCallGate } from "../../ffi/call_gate.ts";
import { DeviceCalls } from "../../ffi/cuda/device_calls.ts";
import type { CudaExecution } from "../../ffi/cuda/execution_library.ts";
import type { TensorRtLibrary } from "../../ffi/tensorrt/library.ts";
import { PooledDevice } from "../../ffi/cuda/pooled_device.ts";
import { TensorRtRuntime } from "../../ffi/tensorrt/runtime.ts";
import type { DeviceMemory } from "../device_list.ts";

/** A GPU with the runtime that engines on it belong to. */
export interface DeviceSlot {
  readonly device: DeviceCalls;
  readonly runtime: TensorRtRuntime;
  /** Compute capability such as `8.6`. */
  readonly capability: string;
}

/** The GPUs in use, each opened with the first model on it. */
export class DeviceSlots implements AsyncDisposable {
  readonly library: TensorRtLibrary;
  readonly cuda: CudaExecution;
  /**
   * One load at a time: the lines of TensorRT's log must be told apart, and memory of the device is taken by one model
   * after the other.
   */
  readonly loadGate: CallGate = createCallGate(1);
  readonly #allowsHostCode: boolean;
  readonly #memory: DeviceMemory | undefined;
  readonly #slots = new Map<number, Promise<DeviceSlot>>();

  constructor(
    library: TensorRtLibrary,
    cuda: CudaExecution,
    { allowsHostCode, memory }: {
      readonly allowsHostCode: boolean;
      /** Memory that all backends share; absent = each device has its own, without pools. */
      readonly memory?: DeviceMemory | undefined;
    },
  ) {
    this.library = library;
    this.cuda = cuda;
    this.#allowsHostCode = allowsHostCode;
    this.#memory = memory;
  }

  /** @throws CudaError or TensorRtError; the next call tries again. */
  open(deviceId: number): Promise<DeviceSlot> {
    let slot = this.#slots.get(deviceId);
    if (slot === undefined) {
      slot = this.#open(deviceId);
      this.#slots.set(deviceId, slot);
      slot.catch(() => this.#slots.delete(deviceId));
    }
    return slot;
  }

  /** Compute capability of a device, which is not opened for that. @throws CudaError */
  capability(deviceId: number): Promise<string> {
    return new DeviceCalls(this.cuda, deviceId).computeCapability();
  }

  /** Runs a load while no other runs. */
  async whileLoading<Value>(load: () => Promise<Value>): Promise<Value> {
    const turn = this.loadGate.enter();
    if (turn !== undefined) await turn;
    try {
      return await load();
    } finally {
      this.loadGate.leave();
    }
  }

  async #open(deviceId: number): Promise<DeviceSlot> {
    const device = this.#createDevice(deviceId);
    const capability = await device.computeCapability();
    const runtime = await TensorRtRuntime.create(this.library, device);
    if (this.#allowsHostCode) runtime.allowHostCode();
    return { device, runtime, capability };
  }

  #createDevice(deviceId: number): DeviceCalls {
    if (this.#memory === undefined) return new DeviceCalls(this.cuda, deviceId);
    const { pinned } = this.#memory;
    const deviceByteSize = this.#memory.poolByteSize(deviceId);
    return new PooledDevice(this.cuda, deviceId, { pinned, deviceByteSize });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const slots = [...this.#slots.values()];
    this.#slots.clear();
    for (const slot of await Promise.allSettled(slots)) {
      if (slot.status !== "fulfilled") continue;
      const { runtime, device } = slot.value;
      await runtime[Symbol.asyncDispose]();
      if (device instanceof PooledDevice) await device.trim();
    }
  }
}
