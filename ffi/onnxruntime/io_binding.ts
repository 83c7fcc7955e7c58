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

/** Inputs and outputs of runs that stay where they lie, host or device: the runtime reads and writes in place. */
export class OrtIoBinding extends NativeHandle {
  readonly #session: OrtSession;
  /** Values that are bound: the runtime holds its own references, these are given back with the binding. */
  readonly #values: NativePointer[] = [];

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

  /**
   * @throws OrtError for a name the model does not have, after which the binding is of no use before {@linkcode clear},
   * or when size and shape do not fit.
   */
  bindInput(name: string, tensor: DeviceTensor): void {
    const { calls } = this.#session.environment;
    checkStatus(calls, calls.BindInput(this.pointer, cString(name), this.#createValue(tensor)));
  }

  /** The run fails when the output turns out to have another shape. @throws OrtError as {@linkcode bindInput} */
  bindOutput(name: string, tensor: DeviceTensor): void {
    const { calls } = this.#session.environment;
    checkStatus(calls, calls.BindOutput(this.pointer, cString(name), this.#createValue(tensor)));
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

  /** Forgets what is bound, for the next run. */
  clear(): void {
    const { calls } = this.#session.environment;
    calls.ClearBoundInputs(this.pointer);
    calls.ClearBoundOutputs(this.pointer);
    this.#releaseValues();
  }

  #createValue({ memory, address, byteSize, shape, elementType }: DeviceTensor): NativePointer {
    const { calls } = this.#session.environment;
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
    const value = notNull(out.pointer, "OrtValue");
    this.#values.push(value);
    return value;
  }

  #releaseValues(): void {
    const { calls } = this.#session.environment;
    for (const value of this.#values) calls.ReleaseValue(value);
    this.#values.length = 0;
  }

  override [Symbol.dispose](): void {
    if (this.disposed) return;
    super[Symbol.dispose]();
    this.#releaseValues();
  }
}
