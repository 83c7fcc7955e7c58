import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { allocateAligned } from "../../ffi/memory.ts";
import { type OvInferRequest, type OvRuntime, OvTensor } from "../../ffi/openvino/mod.ts";
import { joinBytes, joinedByteSize } from "../batch.ts";
import type { InputPlan } from "../onnx_run_plan.ts";
import { ovElementType } from "./signature.ts";

/** Up to this size a copy into a kept tensor costs less than making, setting and freeing one. */
const COPY_BYTE_SIZE = 32 * 1024;
/** Larger scratch buffers are not kept from one run to the next. */
const KEPT_BYTE_SIZE = 64 * 1024 * 1024;

/**
 * Brings input bytes before an infer request: in place where they lie when that is possible, else through a scratch
 * buffer per input. Used for one run at a time.
 */
export class InputFeed implements Disposable {
  readonly #runtime: OvRuntime;
  readonly #request: OvInferRequest;
  readonly #scratch = new Map<number, OvTensor>();
  /** Tensors over the bytes of the run in progress. */
  readonly #lent: OvTensor[] = [];

  constructor(runtime: OvRuntime, request: OvInferRequest) {
    this.#runtime = runtime;
    this.#request = request;
  }

  /** Sets one input from the parts the requests bring; they are used until {@linkcode release}. */
  feed(
    index: number,
    { plan, parts, shape }: {
      readonly plan: InputPlan;
      readonly parts: readonly Tensor[];
      readonly shape: readonly number[];
    },
  ): void {
    const byteSize = joinedByteSize(parts);
    const expected = shape.reduce((product, dim) => product * dim, plan.elementSize);
    if (byteSize !== expected) {
      throw new ServerError(
        "INVALID_ARG",
        `input '${plan.name}' has ${byteSize} bytes, its shape and datatype tell ${expected}`,
      );
    }
    const single = parts.length === 1 ? parts[0]!.data : undefined;
    if (
      single !== undefined && byteSize > COPY_BYTE_SIZE &&
      single.byteOffset % plan.elementSize === 0 && single.buffer instanceof ArrayBuffer
    ) {
      const tensor = this.#wrap(plan, single as Uint8Array<ArrayBuffer>, shape);
      this.#lent.push(tensor);
      this.#request.setInput(index, tensor);
      return;
    }
    const tensor = this.#scratchTensor(index, plan, { byteSize, shape });
    joinBytes(parts, tensor.data);
    this.#request.setInput(index, tensor);
  }

  #wrap(plan: InputPlan, data: Uint8Array<ArrayBuffer>, shape: readonly number[]): OvTensor {
    const elementType = ovElementType(plan.elementType);
    return OvTensor.over(this.#runtime, data, { elementType, shape });
  }

  #scratchTensor(
    index: number,
    plan: InputPlan,
    { byteSize, shape }: { readonly byteSize: number; readonly shape: readonly number[] },
  ): OvTensor {
    const kept = this.#scratch.get(index);
    if (kept?.fits(shape)) return kept;
    const block = kept?.data.buffer;
    // A quarter more than needed, so that slowly growing batches do not allocate each time.
    const data = kept !== undefined && block!.byteLength - kept.data.byteOffset >= byteSize
      ? new Uint8Array(block!, kept.data.byteOffset, byteSize)
      : allocateAligned(byteSize + Math.floor(byteSize / 4)).subarray(0, byteSize);
    const tensor = this.#wrap(plan, data, shape);
    kept?.[Symbol.dispose]();
    this.#scratch.set(index, tensor);
    return tensor;
  }

  /** Ends the run: nothing of its inputs is used any more. */
  release(): void {
    for (const tensor of this.#lent) tensor[Symbol.dispose]();
    this.#lent.length = 0;
    for (const [index, tensor] of this.#scratch) {
      if (tensor.data.buffer.byteLength <= KEPT_BYTE_SIZE) continue;
      tensor[Symbol.dispose]();
      this.#scratch.delete(index);
    }
  }

  [Symbol.dispose](): void {
    this.release();
    for (const tensor of this.#scratch.values()) tensor[Symbol.dispose]();
    this.#scratch.clear();
  }
}
