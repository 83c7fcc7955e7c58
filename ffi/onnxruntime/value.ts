import type { NativePointer } from "../handle.ts";
import { addressOf, copyMemory, OutParameter, viewMemory } from "../memory.ts";
import { ELEMENT_TYPE } from "./element_type.ts";
import { notNull, type OrtEnvironment } from "./environment.ts";
import { checkStatus } from "./error.ts";

/** Shape as the C API takes it; never without an address, even for a scalar. */
export function nativeShape(shape: readonly number[]): BigInt64Array<ArrayBuffer> {
  const dims = new BigInt64Array(new ArrayBuffer(8 * Math.max(shape.length, 1)));
  shape.forEach((dim, index) => dims[index] = BigInt(dim));
  return dims;
}

/** An `OrtValue` over bytes of ours. The caller keeps `data` alive and in place until the value is released. */
export function createTensorOver(
  environment: OrtEnvironment,
  data: Uint8Array<ArrayBuffer>,
  options: { readonly shape: readonly number[]; readonly elementType: number },
): NativePointer {
  const { calls, cpuMemory } = environment;
  const out = new OutParameter();
  const status = calls.CreateTensorWithDataAsOrtValue(
    cpuMemory,
    data,
    BigInt(data.byteLength),
    nativeShape(options.shape),
    BigInt(options.shape.length),
    options.elementType,
    out.cell,
  );
  checkStatus(calls, status);
  return notNull(out.pointer, "OrtValue");
}

/** A tensor of strings, each a range of `bytes`; zero bytes inside them survive. */
export function createStringTensor(
  environment: OrtEnvironment,
  strings: StringRanges,
  shape: readonly number[],
): NativePointer {
  const { calls, allocator } = environment;
  const out = new OutParameter();
  const status = calls.CreateTensorAsOrtValue(
    allocator,
    nativeShape(shape),
    BigInt(shape.length),
    ELEMENT_TYPE.STRING,
    out.cell,
  );
  checkStatus(calls, status);
  const value = notNull(out.pointer, "OrtValue");
  try {
    fillStrings(environment, value, strings);
  } catch (error) {
    calls.ReleaseValue(value);
    throw error;
  }
  return value;
}

/** Strings inside one buffer: element `i` is `bytes[starts[i] … ends[i])`. */
export interface StringRanges {
  /** Writable, with at least one byte after the last string. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly starts: Float64Array;
  readonly ends: Float64Array;
}

function fillStrings(
  environment: OrtEnvironment,
  value: NativePointer,
  { bytes, starts, ends }: StringRanges,
): void {
  const { calls } = environment;
  const count = starts.length;
  if (count === 0) return;
  const base = addressOf(bytes);
  const pointers = new BigUint64Array(new ArrayBuffer(8 * count));
  const withZero: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = starts[index] ?? 0;
    const end = ends[index] ?? 0;
    // The ranges are apart (a length lies between them), so a terminator can be put behind each.
    bytes[end] = 0;
    pointers[index] = base + BigInt(start);
    if (bytes.indexOf(0, start) < end) withZero.push(index);
  }
  checkStatus(calls, calls.FillStringTensor(value, pointers, BigInt(count)));
  const out = new OutParameter();
  for (const index of withZero) {
    const text = bytes.subarray(starts[index], ends[index]);
    const size = BigInt(text.byteLength);
    checkStatus(
      calls,
      calls.GetResizedStringTensorElementBuffer(value, BigInt(index), size, out.cell),
    );
    const target = notNull(out.pointer, "string buffer");
    new Uint8Array(viewMemory(target, text.byteLength)).set(text);
  }
}

/** Element type and shape of a tensor value. */
export interface ValueShape {
  readonly elementType: number;
  readonly shape: number[];
}

/** @throws OrtError when the value is no tensor. */
export function readValueShape(environment: OrtEnvironment, value: NativePointer): ValueShape {
  const { calls } = environment;
  const out = new OutParameter();
  checkStatus(calls, calls.GetTensorTypeAndShape(value, out.cell));
  const info = notNull(out.pointer, "OrtTensorTypeAndShapeInfo");
  try {
    const type = new Int32Array(new ArrayBuffer(4));
    checkStatus(calls, calls.GetTensorElementType(info, type));
    checkStatus(calls, calls.GetDimensionsCount(info, out.cell));
    const rank = out.size;
    const dims = nativeShape(new Array(rank).fill(0));
    checkStatus(calls, calls.GetDimensions(info, dims, BigInt(rank)));
    return { elementType: type[0] ?? 0, shape: Array.from(dims.subarray(0, rank), Number) };
  } finally {
    calls.ReleaseTensorTypeAndShapeInfo(info);
  }
}

/** The bytes of a tensor of fixed-size elements: a view of the runtime's memory, valid until the value is released. */
export function viewTensor(
  environment: OrtEnvironment,
  value: NativePointer,
  byteSize: number,
): ArrayBuffer {
  return viewMemory(tensorMemory(environment, value), byteSize);
}

/** A copy of the bytes of a tensor of fixed-size elements. */
export function copyTensor(
  environment: OrtEnvironment,
  value: NativePointer,
  byteSize: number,
): Uint8Array<ArrayBuffer> {
  if (byteSize === 0) return new Uint8Array(0);
  return copyMemory(tensorMemory(environment, value), byteSize);
}

function tensorMemory(environment: OrtEnvironment, value: NativePointer): NativePointer {
  const { calls } = environment;
  const out = new OutParameter();
  checkStatus(calls, calls.GetTensorMutableData(value, out.cell));
  return notNull(out.pointer, "tensor data");
}

/** All strings of a tensor one after the other, and where each begins. */
export interface StringContent {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** One more entry than there are strings: the last is the total length. */
  readonly offsets: Float64Array;
}

/** Reads a tensor of `count` strings; zero bytes inside them survive. */
export function readStrings(
  environment: OrtEnvironment,
  value: NativePointer,
  count: number,
): StringContent {
  if (count === 0) return { bytes: new Uint8Array(0), offsets: new Float64Array(1) };
  const { calls } = environment;
  const out = new OutParameter();
  checkStatus(calls, calls.GetStringTensorDataLength(value, out.cell));
  const length = out.size;
  // One byte more, so that the buffer has an address when all strings are empty.
  const bytes = new Uint8Array(new ArrayBuffer(length + 1));
  const starts = new BigUint64Array(new ArrayBuffer(8 * count));
  const status = calls.GetStringTensorContent(
    value,
    bytes,
    BigInt(length),
    starts,
    BigInt(count),
  );
  checkStatus(calls, status);
  const offsets = new Float64Array(count + 1);
  for (let index = 0; index < count; index++) offsets[index] = Number(starts[index]);
  offsets[count] = length;
  return { bytes: bytes.subarray(0, length), offsets };
}
