/** `nvinfer1::DataType`. */
export const TRT_TYPE = {
  FLOAT: 0,
  HALF: 1,
  INT8: 2,
  INT32: 3,
  BOOL: 4,
  UINT8: 5,
  FP8: 6,
  BF16: 7,
  INT64: 8,
  INT4: 9,
  FP4: 10,
  E8M0: 11,
} as const;

const TYPE_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(TRT_TYPE).map(([name, type]) => [type, name]),
);

/** Name of a data type, for messages. */
export function trtTypeName(type: number): string {
  return TYPE_NAMES.get(type) ?? `number ${type}`;
}

/** The sizes an optimization profile allows an input. */
export interface ProfileShapes {
  readonly min: readonly number[];
  readonly opt: readonly number[];
  readonly max: readonly number[];
}

/** One input or output of an engine. */
export interface EngineTensor {
  readonly name: string;
  readonly isInput: boolean;
  /** `nvinfer1::DataType`. */
  readonly type: number;
  /** -1 = free. */
  readonly dims: readonly number[];
  /** Its elements are sizes that shapes are computed from, or computed sizes; they lie in the machine's memory. */
  readonly isShapeTensor: boolean;
  /** Read or written in the machine's memory, not the device's. */
  readonly isOnHost: boolean;
  /** `nvinfer1::TensorFormat`; 0 = linear. */
  readonly format: number;
  readonly formatText: string;
  /** The dimension whose elements are packed; -1 = none. */
  readonly vectorizedDim: number;
  readonly componentsPerElement: number;
  /** By profile; empty for outputs. */
  readonly profiles: readonly ProfileShapes[];
}

/** What an engine tells of itself. */
export interface EngineSignature {
  readonly name: string;
  readonly profileCount: number;
  /** In the engine's order. */
  readonly tensors: readonly EngineTensor[];
}
