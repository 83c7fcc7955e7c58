import { ELEMENT_TYPE, ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../../ffi/onnxruntime/signature.ts";
import { readModelTensors } from "./model_tensors.ts";
import type { WireSignature } from "./worker_protocol.ts";

/** How the runtime shows a dimension that is not fixed and has no symbol: -1 in 32 bits. */
const FREE_DIM = 0xffff_ffff;

const ELEMENT_TYPES: Readonly<Record<string, number>> = {
  float32: ELEMENT_TYPE.FLOAT,
  uint8: ELEMENT_TYPE.UINT8,
  int8: ELEMENT_TYPE.INT8,
  uint16: ELEMENT_TYPE.UINT16,
  int16: ELEMENT_TYPE.INT16,
  int32: ELEMENT_TYPE.INT32,
  int64: ELEMENT_TYPE.INT64,
  string: ELEMENT_TYPE.STRING,
  bool: ELEMENT_TYPE.BOOL,
  float16: ELEMENT_TYPE.FLOAT16,
  float64: ELEMENT_TYPE.DOUBLE,
  uint32: ELEMENT_TYPE.UINT32,
  uint64: ELEMENT_TYPE.UINT64,
  uint4: ELEMENT_TYPE.UINT4,
  int4: ELEMENT_TYPE.INT4,
};

const TYPE_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(ELEMENT_TYPES).map(([name, type]) => [type, name]),
);

/** The runtime's name of an element type that it can take. */
export function runtimeTypeName(elementType: number): string {
  return TYPE_NAMES.get(elementType) ?? `number ${elementType}`;
}

/** What the runtime tells of a session, as the native one would: what it leaves out is read from the model's file. */
export async function readSignature(
  path: string,
  session: {
    readonly inputs: readonly WireSignature[];
    readonly outputs: readonly WireSignature[];
  },
): Promise<SessionSignature> {
  const kinds = await readModelTensors(path);
  const complete = (wire: WireSignature): TensorSignature => {
    const { name, type, dims } = wire;
    const declared = kinds.get(name);
    if (type === undefined) {
      const onnxType = declared?.onnxType ?? ONNX_TYPE.UNKNOWN;
      return { name, onnxType, elementType: 0, dims: undefined, symbols: [] };
    }
    const known = {
      name,
      onnxType: ONNX_TYPE.TENSOR,
      elementType: ELEMENT_TYPES[type] ?? 0,
    };
    // The runtime shows an unknown rank like a scalar.
    if (dims.length === 0 && declared?.hasShape === false) {
      return { ...known, dims: undefined, symbols: [] };
    }
    return {
      ...known,
      dims: dims.map((dim) => typeof dim === "string" || dim === FREE_DIM ? -1 : dim),
      symbols: dims.map((dim) => typeof dim === "string" ? dim : ""),
    };
  };
  return {
    inputs: session.inputs.map(complete),
    outputs: session.outputs.map(complete),
    // A run cannot replace them here.
    overridableInitializers: [],
  };
}
