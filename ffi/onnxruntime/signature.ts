import type { NativePointer } from "../handle.ts";
import { OutParameter, readCString } from "../memory.ts";
import { ONNX_TYPE } from "./element_type.ts";
import { notNull, type OrtEnvironment } from "./environment.ts";
import { checkStatus } from "./error.ts";

/** An input or output of a model as the runtime describes it. */
export interface TensorSignature {
  readonly name: string;
  /** `ONNX_TYPE` number; the other fields mean something for tensors only. */
  readonly onnxType: number;
  /** `ELEMENT_TYPE` number. */
  readonly elementType: number;
  /** -1 for a dimension that is not fixed; undefined when the rank is not known. */
  readonly dims: readonly number[] | undefined;
  /** Symbol of each dimension, "" where there is none. */
  readonly symbols: readonly string[];
}

/** What a session takes and gives, in the model's order. */
export interface SessionSignature {
  readonly inputs: readonly TensorSignature[];
  readonly outputs: readonly TensorSignature[];
  /** Initializers that a run may replace. */
  readonly overridableInitializers: readonly TensorSignature[];
}

/** Reads the whole signature of an `OrtSession*`. */
export function readSignature(
  environment: OrtEnvironment,
  session: NativePointer,
): SessionSignature {
  const { calls } = environment;
  return {
    inputs: readTensors(environment, session, {
      count: calls.SessionGetInputCount,
      name: calls.SessionGetInputName,
      type: calls.SessionGetInputTypeInfo,
    }),
    outputs: readTensors(environment, session, {
      count: calls.SessionGetOutputCount,
      name: calls.SessionGetOutputName,
      type: calls.SessionGetOutputTypeInfo,
    }),
    overridableInitializers: readTensors(environment, session, {
      count: calls.SessionGetOverridableInitializerCount,
      name: calls.SessionGetOverridableInitializerName,
      type: calls.SessionGetOverridableInitializerTypeInfo,
    }),
  };
}

interface Accessors {
  readonly count: OrtEnvironment["calls"]["SessionGetInputCount"];
  readonly name: OrtEnvironment["calls"]["SessionGetInputName"];
  readonly type: OrtEnvironment["calls"]["SessionGetInputTypeInfo"];
}

function readTensors(
  environment: OrtEnvironment,
  session: NativePointer,
  accessors: Accessors,
): TensorSignature[] {
  const { calls, allocator } = environment;
  const out = new OutParameter();
  checkStatus(calls, accessors.count(session, out.cell));
  const count = out.size;
  const tensors: TensorSignature[] = [];
  for (let index = 0; index < count; index++) {
    const position = BigInt(index);
    checkStatus(calls, accessors.name(session, position, allocator, out.cell));
    const text = out.pointer;
    const name = readCString(text);
    checkStatus(calls, calls.AllocatorFree(allocator, text));
    checkStatus(calls, accessors.type(session, position, out.cell));
    const typeInfo = notNull(out.pointer, "OrtTypeInfo");
    try {
      tensors.push({ name, ...readTypeInfo(environment, typeInfo) });
    } finally {
      calls.ReleaseTypeInfo(typeInfo);
    }
  }
  return tensors;
}

function readTypeInfo(
  { calls, apiVersion }: OrtEnvironment,
  typeInfo: NativePointer,
): Omit<TensorSignature, "name"> {
  const number = new Int32Array(new ArrayBuffer(4));
  checkStatus(calls, calls.GetOnnxTypeFromTypeInfo(typeInfo, number));
  const onnxType = number[0] ?? ONNX_TYPE.UNKNOWN;
  const out = new OutParameter();
  checkStatus(calls, calls.CastTypeInfoToTensorInfo(typeInfo, out.cell));
  const tensorInfo = out.pointer;
  if (onnxType !== ONNX_TYPE.TENSOR || tensorInfo === null) {
    return { onnxType, elementType: 0, dims: undefined, symbols: [] };
  }
  checkStatus(calls, calls.GetTensorElementType(tensorInfo, number));
  const elementType = number[0] ?? 0;
  // Older libraries cannot tell an unknown rank from a scalar.
  const hasShape = apiVersion < 24 || calls.TensorTypeAndShape_HasShape(tensorInfo);
  if (!hasShape) return { onnxType, elementType, dims: undefined, symbols: [] };
  checkStatus(calls, calls.GetDimensionsCount(tensorInfo, out.cell));
  const rank = out.size;
  const dims = new BigInt64Array(new ArrayBuffer(8 * Math.max(rank, 1)));
  const symbols = new BigUint64Array(new ArrayBuffer(8 * Math.max(rank, 1)));
  checkStatus(calls, calls.GetDimensions(tensorInfo, dims, BigInt(rank)));
  checkStatus(calls, calls.GetSymbolicDimensions(tensorInfo, symbols, BigInt(rank)));
  return {
    onnxType,
    elementType,
    dims: Array.from(dims.subarray(0, rank), Number),
    symbols: Array.from(
      symbols.subarray(0, rank),
      (address) => readCString(Deno.UnsafePointer.create(address)),
    ),
  };
}
