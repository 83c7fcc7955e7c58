import { NativeHandle } from "../handle.ts";
import { addressOf, OutParameter } from "../memory.ts";
import type { OvElementType } from "./element_type.ts";
import { checkStatus, OvError } from "./error.ts";
import type { OvRuntime } from "./runtime.ts";

/** `ov_shape_t` as it is passed by value; keep it while its `dims` are read. */
export function nativeShape(
  shape: readonly number[],
): { readonly bytes: Uint8Array<ArrayBuffer>; readonly dims: BigInt64Array<ArrayBuffer> } {
  const dims = new BigInt64Array(new ArrayBuffer(8 * Math.max(shape.length, 1)));
  shape.forEach((dim, index) => dims[index] = BigInt(dim));
  const words = BigUint64Array.of(BigInt(shape.length), addressOf(dims));
  return { bytes: new Uint8Array(words.buffer), dims };
}

/** A tensor over bytes of ours, which it keeps alive. */
export class OvTensor extends NativeHandle {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly shape: readonly number[];

  private constructor(
    runtime: OvRuntime,
    pointer: Deno.PointerObject,
    { data, shape }: Pick<OvTensor, "data" | "shape">,
  ) {
    super(pointer, (tensor) => runtime.calls.ov_tensor_free(tensor));
    this.data = data;
    this.shape = shape;
  }

  /** @throws OvError */
  static over(
    runtime: OvRuntime,
    data: Uint8Array<ArrayBuffer>,
    { elementType, shape }: {
      readonly elementType: OvElementType;
      readonly shape: readonly number[];
    },
  ): OvTensor {
    const { calls } = runtime;
    const out = new OutParameter();
    const native = nativeShape(shape);
    const code = runtime.codeOf(elementType);
    // A tensor without elements needs an address all the same.
    const bytes = data.byteLength === 0 ? runtime.emptyBlock : data;
    checkStatus(calls, calls.ov_tensor_create_from_host_ptr(code, native.bytes, bytes, out.cell));
    native.dims.fill(0n);
    if (out.pointer === null) throw new OvError(0, "no tensor was made");
    return new OvTensor(runtime, out.pointer, { data, shape });
  }

  /** A tensor with memory of the library, which grows with what is written. @throws OvError */
  static create(
    runtime: OvRuntime,
    { elementType, shape }: {
      readonly elementType: OvElementType;
      readonly shape: readonly number[];
    },
  ): OvTensor {
    const { calls } = runtime;
    const out = new OutParameter();
    const native = nativeShape(shape);
    checkStatus(
      calls,
      calls.ov_tensor_create(runtime.codeOf(elementType), native.bytes, out.cell),
    );
    native.dims.fill(0n);
    if (out.pointer === null) throw new OvError(0, "no tensor was made");
    return new OvTensor(runtime, out.pointer, { data: runtime.emptyBlock, shape });
  }

  /** True when it has these sizes. */
  fits(shape: readonly number[]): boolean {
    const own = this.shape;
    return own.length === shape.length && own.every((dim, index) => dim === shape[index]);
  }
}
