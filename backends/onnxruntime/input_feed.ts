import { ServerError } from "../../proto/status.ts";
import { byteSizeOf, type DevicePlace, type Tensor } from "../../proto/tensor.ts";
import { addressOfPointer, allocateAligned } from "../../ffi/memory.ts";
import type { NativePointer } from "../../ffi/handle.ts";
import {
  createStringTensor,
  createTensorAt,
  createTensorOver,
  type OrtEnvironment,
  OrtTensor,
} from "../../ffi/onnxruntime/mod.ts";
import { joinBytes, joinedByteSize } from "../batch.ts";
import type { InputPlan, OutputPlan } from "../onnx_run_plan.ts";
import { type OutputTarget, placedOutput } from "../output_target.ts";
import type { PlacedValue } from "./native_run.ts";
import { isReachable, type SessionMemory } from "./session_memory.ts";
import { stringRanges } from "./string_tensor.ts";

/** Up to this size a copy into a kept tensor costs less than making and freeing an `OrtValue`. */
const COPY_BYTE_SIZE = 32 * 1024;
/** Larger scratch buffers are not kept from one run to the next. */
const KEPT_BYTE_SIZE = 64 * 1024 * 1024;

/**
 * Brings input bytes before the runtime: in place where they lie when that is possible, else through a scratch buffer
 * per input. Used for one run at a time.
 */
export class InputFeed implements Disposable {
  readonly #environment: OrtEnvironment;
  readonly #memory: SessionMemory | undefined;
  readonly #scratch = new Map<string, OrtTensor>();
  /** Values and bytes of the run in progress. */
  readonly #values: NativePointer[] = [];
  readonly #pinned: unknown[] = [];
  #usesDevice = false;

  /** @param memory that of the GPU the session runs on; undefined = it does not run on one. */
  constructor(environment: OrtEnvironment, memory?: SessionMemory) {
    this.#environment = environment;
    this.#memory = memory;
  }

  /** Whether a value of the run in progress lies on the GPU. */
  get usesDevice(): boolean {
    return this.#usesDevice;
  }

  /**
   * Makes the `OrtValue` of one input from the parts the requests bring, and returns its address. It and the bytes
   * stay until {@linkcode release}.
   */
  feed(plan: InputPlan, parts: readonly Tensor[], shape: readonly number[]): bigint {
    if (plan.elementSize === 0) return this.#feedStrings(parts, shape);
    const byteSize = parts.length === 1 ? byteSizeOf(parts[0]!) : joinedByteSize(parts);
    const expected = shape.reduce((product, dim) => product * dim, plan.elementSize);
    if (byteSize !== expected) {
      throw new ServerError(
        "INVALID_ARG",
        `input '${plan.name}' has ${byteSize} bytes, its shape and datatype tell ${expected}`,
      );
    }
    const place = parts.length === 1 ? parts[0]!.place : undefined;
    if (place !== undefined && isReachable(this.#memory, place)) {
      return this.#valueAt(place, plan, shape);
    }
    const single = parts.length === 1 ? parts[0]!.data : undefined;
    if (
      single !== undefined && byteSize > COPY_BYTE_SIZE &&
      single.byteOffset % plan.elementSize === 0 && single.buffer instanceof ArrayBuffer
    ) {
      return this.#feedInPlace(plan, single as Uint8Array<ArrayBuffer>, shape);
    }
    const tensor = this.#scratchTensor(plan, byteSize, shape);
    if (single !== undefined) tensor.data.set(single);
    else joinBytes(parts, tensor.data);
    return tensor.address;
  }

  /**
   * Makes the `OrtValue` of an output over memory of the client, which stays until {@linkcode release}; undefined when
   * the output does not fit there, or costs less by a copy.
   */
  place(
    plan: OutputPlan,
    target: OutputTarget,
    { shape, byteSize }: { readonly shape: readonly number[]; readonly byteSize: number },
  ): PlacedValue | undefined {
    if (byteSize > target.byteSize || byteSize === 0) return undefined;
    const tensor = () => placedOutput(target, { ...plan, shape }, byteSize);
    if (target.place !== undefined) {
      if (!isReachable(this.#memory, target.place)) return undefined;
      const place = { ...target.place, byteSize };
      return { address: this.#valueAt(place, plan, shape), tensor: tensor() };
    }
    const { bytes } = target;
    const isSuitable = byteSize > COPY_BYTE_SIZE && bytes.byteOffset % plan.elementSize === 0 &&
      bytes.buffer instanceof ArrayBuffer;
    if (!isSuitable) return undefined;
    const part = bytes.subarray(0, byteSize) as Uint8Array<ArrayBuffer>;
    return { address: this.#feedInPlace(plan, part, shape), tensor: tensor() };
  }

  #valueAt(
    { address, byteSize }: DevicePlace,
    { elementType }: Pick<InputPlan, "elementType">,
    shape: readonly number[],
  ): bigint {
    const { memory } = this.#memory!;
    const value = createTensorAt({ memory, address, byteSize, shape, elementType });
    this.#values.push(value);
    this.#usesDevice = true;
    return addressOfPointer(value);
  }

  #feedInPlace(
    plan: Pick<InputPlan, "elementType">,
    data: Uint8Array<ArrayBuffer>,
    shape: readonly number[],
  ): bigint {
    const { elementType } = plan;
    const value = createTensorOver(this.#environment, data, { shape, elementType });
    this.#values.push(value);
    this.#pinned.push(data);
    return addressOfPointer(value);
  }

  #feedStrings(parts: readonly Tensor[], shape: readonly number[]): bigint {
    const value = createStringTensor(this.#environment, stringRanges(parts), shape);
    this.#values.push(value);
    return addressOfPointer(value);
  }

  #scratchTensor({ name, elementType }: InputPlan, byteSize: number, shape: readonly number[]) {
    const kept = this.#scratch.get(name);
    if (kept?.fits(byteSize, shape)) return kept;
    const block = kept?.data.buffer;
    // A quarter more than needed, so that slowly growing batches do not allocate each time.
    const data = kept !== undefined && block!.byteLength - kept.data.byteOffset >= byteSize
      ? new Uint8Array(block!, kept.data.byteOffset, byteSize)
      : allocateAligned(byteSize + Math.floor(byteSize / 4)).subarray(0, byteSize);
    const tensor = OrtTensor.over(this.#environment, data, { shape, elementType });
    kept?.[Symbol.dispose]();
    this.#scratch.set(name, tensor);
    return tensor;
  }

  /** Ends the run: nothing of its inputs is used any more. */
  release(): void {
    const { calls } = this.#environment;
    for (const value of this.#values) calls.ReleaseValue(value);
    this.#values.length = 0;
    this.#pinned.length = 0;
    this.#usesDevice = false;
    for (const [name, tensor] of this.#scratch) {
      if (tensor.data.buffer.byteLength <= KEPT_BYTE_SIZE) continue;
      tensor[Symbol.dispose]();
      this.#scratch.delete(name);
    }
  }

  [Symbol.dispose](): void {
    this.release();
    for (const tensor of this.#scratch.values()) tensor[Symbol.dispose]();
    this.#scratch.clear();
  }
}
