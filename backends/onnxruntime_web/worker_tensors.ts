import type { Tensor } from "onnxruntime-web";
import { decodeStrings, encodeStrings, StringTensorError } from "./string_elements.ts";
import type { WireTensor } from "./worker_protocol.ts";

/** Views of a buffer by the runtime's names of types. */
const VIEWS: Readonly<Record<string, new (buffer: ArrayBuffer) => ArrayBufferView>> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Float16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
};

type TensorConstructor = new (type: string, data: unknown, dims: readonly number[]) => Tensor;

/** A tensor of the runtime over the bytes that arrived. @throws StringTensorError for unsuitable strings. */
export function toRuntime(
  constructor: unknown,
  { name, type, dims, data }: WireTensor,
): Tensor {
  const Constructor = constructor as TensorConstructor;
  if (type !== "string") {
    const View = VIEWS[type];
    if (View === undefined) throw new Error(`input '${name}' has the unknown type '${type}'`);
    return new Constructor(type, new View(data), dims);
  }
  const count = dims.reduce((product, dim) => product * dim, 1);
  try {
    return new Constructor(type, decodeStrings(new Uint8Array(data), count), dims);
  } catch (error) {
    if (!(error instanceof StringTensorError)) throw error;
    throw new StringTensorError(`BYTES data of input '${name}' ${error.message}`);
  }
}

/** The bytes of a tensor that the runtime made. */
export function fromRuntime(name: string, { type, dims, data }: Tensor): WireTensor {
  if (Array.isArray(data)) return { name, type, dims: [...dims], data: encodeStrings(data) };
  const { buffer, byteOffset, byteLength } = data as ArrayBufferView;
  // The runtime hands out buffers of its own; should one be larger, only the tensor's part is sent.
  const whole = byteOffset === 0 && byteLength === buffer.byteLength &&
    buffer instanceof ArrayBuffer;
  const own = whole
    ? buffer as ArrayBuffer
    : new Uint8Array(buffer, byteOffset, byteLength).slice().buffer;
  return { name, type, dims: [...dims], data: own };
}
