import { NativeHandle, type NativePointer } from "../handle.ts";
import { cString, OutParameter, pointerAt, whileHolding } from "../memory.ts";
import { notNull, type OrtEnvironment } from "./environment.ts";
import { checkStatus } from "./error.ts";
import type { OrtRunOptions, OrtSession } from "./session.ts";
import { nativeShape } from "./value.ts";

const DEVICE_ALLOCATOR = 0;
const DEFAULT_MEMORY = 0;

/** Memory of a device, as the runtime names it: where the bytes of a value lie. */
export class OrtMemory extends NativeHandle {
  readonly environment: OrtEnvironment;

  private constructor(pointer: NativePointer, environment: OrtEnvironment) {
    const { calls } = environment;
    super(pointer, (memory) => calls.ReleaseMemoryInfo(memory));
    this.environment = environment;
  }

  /** @throws OrtError for a name that the runtime does not know. */
  static of(environment: OrtEnvironment, name: "Cpu" | "Cuda", deviceId: number): OrtMemory {
    const { calls } = environment;
    const out = new OutParameter();
    const text = cString(name);
    checkStatus(
      calls,
      calls.CreateMemoryInfo(text, DEVICE_ALLOCATOR, deviceId, DEFAULT_MEMORY, out.cell),
    );
    return new OrtMemory(notNull(out.pointer, "OrtMemoryInfo"), environment);
  }
}

/** Bytes of a tensor on a device. Whoever made them keeps them until the runs that use them have ended. */
export interface DeviceTensor {
  readonly memory: OrtMemory;
  readonly address: bigint;
  readonly byteSize: number;
  /** `ELEMENT_TYPE` number of a type of fixed size. */
  readonly elementType: number;
  readonly shape: readonly number[];
}

/** An `OrtValue` over bytes on a device; the caller releases it. @throws OrtError when size and shape do not fit. */
export function createTensorAt(tensor: DeviceTensor): NativePointer {
  const { memory, address, byteSize, shape, elementType } = tensor;
  const { calls } = memory.environment;
  const out = new OutParameter();
  const status = calls.CreateTensorWithAddressAsOrtValue(
    memory.pointer,
    pointerAt(address),
    BigInt(byteSize),
    nativeShape(shape),
    BigInt(shape.length),
    elementType,
    out.cell,
  );
  checkStatus(calls, status);
  return notNull(out.pointer, "OrtValue");
}

/**
 * Inputs and outputs of runs by their names, whose values stay where they lie, host or device: the runtime reads and
 * writes in place. It holds references of its own to the values; their bytes must outlive the runs.
 */
export class OrtIoBinding extends NativeHandle {
  readonly #session: OrtSession;

  private constructor(pointer: NativePointer, session: OrtSession) {
    const { calls } = session.environment;
    super(pointer, (binding) => calls.ReleaseIoBinding(binding));
    this.#session = session;
  }

  static create(session: OrtSession): OrtIoBinding {
    const { calls } = session.environment;
    const out = new OutParameter();
    checkStatus(calls, calls.CreateIoBinding(session.pointer, out.cell));
    return new OrtIoBinding(notNull(out.pointer, "OrtIoBinding"), session);
  }

  /** @throws OrtError for a name the model does not have; the binding is then of no use before {@linkcode clear}. */
  bindInput(name: string, value: Deno.PointerValue): void {
    const { calls } = this.#session.environment;
    checkStatus(calls, calls.BindInput(this.pointer, cString(name), value));
  }

  /**
   * Without a value the runtime makes one in host memory, which {@linkcode takeOutputs} gives. With one the run fails
   * when the output turns out to have another shape. @throws OrtError as {@linkcode bindInput}
   */
  bindOutput(name: string, value?: Deno.PointerValue): void {
    const { calls, cpuMemory } = this.#session.environment;
    const status = value === undefined
      ? calls.BindOutputToDevice(this.pointer, cString(name), cpuMemory)
      : calls.BindOutput(this.pointer, cString(name), value);
    checkStatus(calls, status);
  }

  /** Runs on the blocking pool; when it has ended, the outputs are whole. @throws OrtError */
  async run(options: OrtRunOptions): Promise<void> {
    const { environment } = this.#session;
    const { calls } = environment;
    const [session, binding, runOptions] = [this.#session.pointer, this.pointer, options.pointer];
    await whileHolding([this, this.#session, options], async () => {
      checkStatus(calls, await calls.SynchronizeBoundInputs(binding));
      checkStatus(calls, await calls.RunWithBinding(session, runOptions, binding));
      checkStatus(calls, await calls.SynchronizeBoundOutputs(binding));
    });
  }

  /** The values of all outputs in the order in which they were bound; the caller releases every one of them. */
  takeOutputs(): NativePointer[] {
    const { calls, allocator } = this.#session.environment;
    const values = new OutParameter();
    const count = new OutParameter();
    checkStatus(
      calls,
      calls.GetBoundOutputValues(this.pointer, allocator, values.cell, count.cell),
    );
    const { pointer } = values;
    if (pointer === null) return [];
    const view = new Deno.UnsafePointerView(pointer);
    const taken = Array.from(
      { length: count.size },
      (_, index) => notNull(view.getPointer(8 * index), "OrtValue"),
    );
    checkStatus(calls, calls.AllocatorFree(allocator, pointer));
    return taken;
  }

  /** Forgets what is bound, for the next run. */
  clear(): void {
    const { calls } = this.#session.environment;
    calls.ClearBoundInputs(this.pointer);
    calls.ClearBoundOutputs(this.pointer);
  }
}
