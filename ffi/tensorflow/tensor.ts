import { NativeHandle, type NativePointer } from "../handle.ts";
import { copyMemory } from "../memory.ts";
import { TF_DATA_TYPE } from "./element_type.ts";
import type { TfRuntime } from "./runtime.ts";
import { TfError } from "./status.ts";
import type { StringDeallocator } from "./string_deallocator.ts";
import { STRING_BYTE_SIZE, type TfCalls } from "./symbols.ts";

const RESOURCE_EXHAUSTED = 8;

/** What a run made of one output. Strings have their lengths in front, as BYTES. */
export interface TfOutputValue {
  readonly dataType: number;
  readonly shape: readonly number[];
  readonly data: Uint8Array<ArrayBuffer>;
}

/** Type and sizes of a tensor to make. */
export interface TfTensorForm {
  /** `TF_DATA_TYPE` number. */
  readonly dataType: number;
  readonly shape: readonly number[];
}

/** A tensor in memory of the library: graphs with variables may keep it for longer than a run. */
export class TfTensor extends NativeHandle {
  private constructor(pointer: NativePointer, destroy: (pointer: NativePointer) => void) {
    super(pointer, destroy);
  }

  /** Numbers out of `parts`, one behind the other. @throws TfError when memory is short. */
  static ofBytes(
    { calls }: TfRuntime,
    form: TfTensorForm,
    parts: readonly Uint8Array[],
  ): TfTensor {
    const byteSize = parts.reduce((size, part) => size + part.byteLength, 0);
    const pointer = allocate(calls, form, byteSize);
    let target = calls.TF_TensorData(pointer);
    for (const part of parts) {
      if (part.byteLength === 0) continue;
      calls.memcpy(target, part as Uint8Array<ArrayBuffer>, BigInt(part.byteLength));
      if (parts.length > 1) target = Deno.UnsafePointer.offset(target!, part.byteLength);
    }
    return new TfTensor(pointer, (tensor) => calls.TF_DeleteTensor(tensor));
  }

  /** Strings, each a view of its bytes; `shape` has as many elements. @throws TfError when memory is short. */
  static ofStrings(
    { calls, stringDeallocator }: TfRuntime,
    shape: readonly number[],
    texts: readonly Uint8Array[],
  ): TfTensor {
    const form = { dataType: TF_DATA_TYPE.STRING, shape };
    const isKept = stringDeallocator !== undefined && texts.length > 0;
    const pointer = isKept
      ? allocateStrings(calls, form, { count: texts.length, deallocator: stringDeallocator })
      : allocate(calls, form, texts.length * STRING_BYTE_SIZE);
    let element = calls.TF_TensorData(pointer);
    for (const text of texts) {
      calls.TF_StringInit(element);
      if (text.byteLength > 0) {
        calls.TF_StringCopy(element, text as Uint8Array<ArrayBuffer>, BigInt(text.byteLength));
      }
      element = Deno.UnsafePointer.offset(element!, STRING_BYTE_SIZE);
    }
    if (isKept) return new TfTensor(pointer, (tensor) => calls.TF_DeleteTensor(tensor));
    return new TfTensor(pointer, (tensor) => {
      freeStrings(calls, tensor, texts.length);
      calls.TF_DeleteTensor(tensor);
    });
  }
}

/** What long strings hold is not freed with memory that the library allocated. */
function freeStrings(calls: TfCalls, tensor: NativePointer, count: number): void {
  let element = calls.TF_TensorData(tensor);
  for (let index = 0; index < count; index++) {
    calls.TF_StringDealloc(element);
    element = Deno.UnsafePointer.offset(element!, STRING_BYTE_SIZE);
  }
}

/** A tensor over memory that is freed with its strings. */
function allocateStrings(
  calls: TfCalls,
  { dataType, shape }: TfTensorForm,
  { count, deallocator }: { readonly count: number; readonly deallocator: StringDeallocator },
): NativePointer {
  const byteSize = BigInt(count * STRING_BYTE_SIZE);
  const memory = calls.malloc(byteSize);
  const { deallocate, argument } = deallocator;
  const pointer = memory === null ? null : calls.TF_NewTensor(
    ...[dataType, nativeDims(shape), shape.length, memory, byteSize] as const,
    ...[deallocate, Deno.UnsafePointer.of(argument)] as const,
  );
  return pointer ?? noMemory(count * STRING_BYTE_SIZE);
}

function allocate(
  calls: TfCalls,
  { dataType, shape }: TfTensorForm,
  byteSize: number,
): NativePointer {
  const dims = nativeDims(shape);
  const pointer = calls.TF_AllocateTensor(dataType, dims, shape.length, BigInt(byteSize));
  return pointer ?? noMemory(byteSize);
}

function nativeDims(shape: readonly number[]): BigInt64Array<ArrayBuffer> {
  const dims = new BigInt64Array(new ArrayBuffer(8 * Math.max(shape.length, 1)));
  shape.forEach((dim, index) => dims[index] = BigInt(dim));
  return dims;
}

function noMemory(byteSize: number): never {
  throw new TfError(RESOURCE_EXHAUSTED, `no memory for a tensor of ${byteSize} bytes`);
}

/** A copy of a tensor that a run made. The tensor itself is still to be deleted. */
export function readTensor({ calls }: TfRuntime, tensor: NativePointer): TfOutputValue {
  const dataType = calls.TF_TensorType(tensor);
  const shape = Array.from(
    { length: calls.TF_NumDims(tensor) },
    (_, index) => Number(calls.TF_Dim(tensor, index)),
  );
  const byteSize = Number(calls.TF_TensorByteSize(tensor));
  const start = calls.TF_TensorData(tensor);
  if (byteSize === 0 || start === null) return { dataType, shape, data: new Uint8Array(0) };
  const data = dataType === TF_DATA_TYPE.STRING
    ? readStrings(calls, start, shape.reduce((product, dim) => product * dim, 1))
    : copyMemory(start, byteSize);
  return { dataType, shape, data };
}

function readStrings(
  calls: TfCalls,
  start: NativePointer,
  count: number,
): Uint8Array<ArrayBuffer> {
  const elements: NativePointer[] = [];
  const sizes: number[] = [];
  let byteSize = 0;
  let element: Deno.PointerValue = start;
  for (let index = 0; index < count; index++) {
    const size = Number(calls.TF_StringGetSize(element));
    elements.push(element!);
    sizes.push(size);
    byteSize += 4 + size;
    element = Deno.UnsafePointer.offset(element!, STRING_BYTE_SIZE);
  }
  const data = new Uint8Array(byteSize);
  const view = new DataView(data.buffer);
  let offset = 0;
  sizes.forEach((size, index) => {
    view.setUint32(offset, size, true);
    offset += 4;
    if (size > 0) {
      const text = calls.TF_StringGetDataPointer(elements[index]!);
      Deno.UnsafePointerView.copyInto(text!, data.subarray(offset, offset + size));
    }
    offset += size;
  });
  return data;
}
