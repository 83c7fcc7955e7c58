import { allocateAligned } from "../../ffi/memory.ts";
import { type OrtEnvironment, OrtTensor } from "../../ffi/onnxruntime/mod.ts";

/** Free memory kept per output. */
const KEPT_BYTE_SIZE = 64 * 1024 * 1024;
/** Free tensors kept per output and size. */
const KEPT_COUNT = 64;

/** Tensors over buffers of ours into which the runtime writes one output; used again when a response is done. */
export class OutputPool implements Disposable {
  readonly #environment: OrtEnvironment;
  readonly #elementType: number;
  readonly #free = new Map<number, OrtTensor[]>();
  #freeByteSize = 0;
  #isDisposed = false;

  constructor(environment: OrtEnvironment, elementType: number) {
    this.#environment = environment;
    this.#elementType = elementType;
  }

  /** A tensor of this size and shape; its bytes hold whatever was there before. */
  take(byteSize: number, shape: readonly number[]): OrtTensor {
    const tensor = this.#free.get(byteSize)?.pop();
    if (tensor === undefined) {
      const data = allocateAligned(byteSize).subarray(0, byteSize);
      return this.#wrap(data, shape);
    }
    this.#freeByteSize -= byteSize;
    if (tensor.fits(byteSize, shape)) return tensor;
    const { data } = tensor;
    tensor[Symbol.dispose]();
    return this.#wrap(data, shape);
  }

  #wrap(data: Uint8Array<ArrayBuffer>, shape: readonly number[]): OrtTensor {
    const elementType = this.#elementType;
    return OrtTensor.over(this.#environment, data, { shape, elementType });
  }

  /** Gives a tensor back whose bytes nobody uses any more. */
  give(tensor: OrtTensor): void {
    const byteSize = tensor.data.byteLength;
    if (this.#isDisposed || byteSize > KEPT_BYTE_SIZE) return tensor[Symbol.dispose]();
    if (this.#freeByteSize + byteSize > KEPT_BYTE_SIZE) this.#clear();
    const stack = this.#free.get(byteSize);
    if (stack === undefined) this.#free.set(byteSize, [tensor]);
    else if (stack.length < KEPT_COUNT) stack.push(tensor);
    else return tensor[Symbol.dispose]();
    this.#freeByteSize += byteSize;
  }

  #clear(): void {
    for (const stack of this.#free.values()) {
      for (const tensor of stack) tensor[Symbol.dispose]();
    }
    this.#free.clear();
    this.#freeByteSize = 0;
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#clear();
  }
}
