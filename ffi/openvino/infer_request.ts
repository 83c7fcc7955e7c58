import { NativeHandle, type NativePointer } from "../handle.ts";
import { copyMemory, OutParameter, pointerAt, whileHolding } from "../memory.ts";
import { checkStatus, INVALID_C_PARAMETER, type OvError } from "./error.ts";
import { InferCall } from "./infer_call.ts";
import type { OvRuntime } from "./runtime.ts";
import type { OvTensor } from "./tensor.ts";

/** What a run made of one output. */
export interface OvOutput {
  readonly shape: readonly number[];
  readonly data: Uint8Array<ArrayBuffer>;
}

/** A place in which a compiled model runs, once at a time. */
export class OvInferRequest extends NativeHandle {
  readonly #runtime: OvRuntime;
  readonly #out = new OutParameter();
  /** ov_shape_t: int64_t rank, int64_t* dims */
  readonly #shape = new BigInt64Array(new ArrayBuffer(16));
  /** The tensors it reads in its next run. */
  readonly #inputs: OvTensor[] = [];
  readonly #outputs: OvTensor[] = [];
  readonly #call: InferCall;

  constructor(runtime: OvRuntime, pointer: NativePointer) {
    super(pointer, (request) => runtime.calls.ov_infer_request_free(request));
    this.#runtime = runtime;
    this.#call = new InferCall(runtime.calls, pointer, runtime.rowTools);
  }

  /** Sets one input for the runs to come. @throws OvError */
  setInput(index: number, tensor: OvTensor): void {
    if (this.#inputs[index] === tensor) return;
    const { calls } = this.#runtime;
    checkStatus(
      calls,
      calls.ov_infer_request_set_input_tensor_by_index(
        this.pointer,
        BigInt(index),
        tensor.pointer,
      ),
    );
    this.#inputs[index] = tensor;
  }

  /** Runs on the blocking pool. @returns the failure, if any. */
  async infer(): Promise<OvError | undefined> {
    return await whileHolding(
      [this, ...this.#inputs, ...this.#outputs],
      () => this.#call.run(),
    );
  }

  /** Makes the run in flight fail soon with `INFER_CANCELLED`. */
  cancel(): void {
    this.#runtime.calls.ov_infer_request_cancel(this.pointer);
  }

  /**
   * Sets where one output goes. Without that the library would show memory that it shares: of an input that the model
   * gives on as it is, or of another request in the same stream.
   * @throws OvError
   */
  setOutput(index: number, tensor: OvTensor): void {
    const { calls } = this.#runtime;
    checkStatus(
      calls,
      calls.ov_infer_request_set_output_tensor_by_index(
        this.pointer,
        BigInt(index),
        tensor.pointer,
      ),
    );
    this.#outputs[index] = tensor;
  }

  /** A copy of one output of the last run: the memory is used again by the next. @throws OvError */
  readOutput(index: number): OvOutput {
    const { calls } = this.#runtime;
    const out = this.#out;
    const tensor = this.#outputs[index]!.pointer;
    const shape = this.#readShape(tensor);
    checkStatus(calls, calls.ov_tensor_get_byte_size(tensor, out.cell));
    const byteSize = out.size;
    if (byteSize === 0) return { shape, data: new Uint8Array(0) };
    checkStatus(calls, calls.ov_tensor_data(tensor, out.cell));
    return { shape, data: copyMemory(out.pointer!, byteSize) };
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]();
    for (const tensor of this.#outputs.splice(0)) tensor?.[Symbol.dispose]();
  }

  #readShape(tensor: NativePointer): number[] {
    const { calls } = this.#runtime;
    const shape = this.#shape;
    const status = calls.ov_tensor_get_shape(tensor, shape);
    // The interface cannot tell the shape of a scalar.
    if (status === INVALID_C_PARAMETER) return [];
    checkStatus(calls, status);
    const dims = pointerAt(BigInt.asUintN(64, shape[1]!));
    const view = dims === null ? undefined : new Deno.UnsafePointerView(dims);
    const sizes = Array.from(
      { length: Number(shape[0]) },
      (_, index) => Number(view?.getBigInt64(index * 8) ?? 0n),
    );
    calls.ov_shape_free(shape);
    return sizes;
  }
}
