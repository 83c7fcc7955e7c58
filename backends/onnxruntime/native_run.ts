import { CStringArray } from "../../ffi/memory.ts";
import type { OrtTensor } from "../../ffi/onnxruntime/mod.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { OutputPlan } from "../onnx_run_plan.ts";

/** Pointer arrays of one run, kept and filled again for the next one. */
export class RunArrays {
  inputs = new BigUint64Array(new ArrayBuffer(8 * 8));
  outputs = new BigUint64Array(new ArrayBuffer(8 * 8));

  /** Makes room for so many values. */
  reserve(inputCount: number, outputCount: number): void {
    if (inputCount > this.inputs.length) {
      this.inputs = new BigUint64Array(new ArrayBuffer(8 * inputCount * 2));
    }
    if (outputCount > this.outputs.length) {
      this.outputs = new BigUint64Array(new ArrayBuffer(8 * outputCount * 2));
    }
  }
}

/** Native name arrays by the names in them; a model sees few combinations. */
export class NameCache {
  static readonly #LIMIT = 256;
  readonly #arrays = new Map<string, CStringArray>();
  #last: { readonly names: readonly string[]; readonly array: CStringArray } | undefined;

  get(names: readonly string[]): CStringArray {
    // The same array object comes again and again when requests ask for all outputs.
    if (this.#last?.names === names) return this.#last.array;
    const key = names.join("\0");
    let array = this.#arrays.get(key);
    if (array === undefined) {
      if (this.#arrays.size >= NameCache.#LIMIT) this.#arrays.clear();
      array = new CStringArray(names);
      this.#arrays.set(key, array);
    }
    this.#last = { names, array };
    return array;
  }
}

/** An output of the run in progress: where it goes when that was known before, into memory of ours or of the client. */
export interface PendingOutput {
  readonly plan: OutputPlan;
  readonly target: OrtTensor | undefined;
  readonly placed: PlacedValue | undefined;
}

/** A value over memory of the client, and the output that will lie there. */
export interface PlacedValue {
  /** Of the `OrtValue`, which is released with the inputs of the run. */
  readonly address: bigint;
  readonly tensor: Tensor;
}
