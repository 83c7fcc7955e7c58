import { ServerError } from "../../proto/status.ts";
import { ELEMENT_TYPE, ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../../ffi/onnxruntime/signature.ts";
import type { OvElementType, OvPort } from "../../ffi/openvino/mod.ts";

const ELEMENT_TYPE_OF: Readonly<Record<OvElementType, number>> = {
  boolean: ELEMENT_TYPE.BOOL,
  bf16: ELEMENT_TYPE.BFLOAT16,
  f16: ELEMENT_TYPE.FLOAT16,
  f32: ELEMENT_TYPE.FLOAT,
  f64: ELEMENT_TYPE.DOUBLE,
  i8: ELEMENT_TYPE.INT8,
  i16: ELEMENT_TYPE.INT16,
  i32: ELEMENT_TYPE.INT32,
  i64: ELEMENT_TYPE.INT64,
  u8: ELEMENT_TYPE.UINT8,
  u16: ELEMENT_TYPE.UINT16,
  u32: ELEMENT_TYPE.UINT32,
  u64: ELEMENT_TYPE.UINT64,
};

/** Inputs and outputs of a compiled model. */
export interface OvPorts {
  readonly inputs: readonly OvPort[];
  readonly outputs: readonly OvPort[];
}

/** The ports of a model; of a frozen graph by the names of its operators, as configurations have them. */
export function namePorts({ inputs, outputs }: OvPorts, path: string): OvPorts {
  if (!path.endsWith(".graphdef")) return { inputs, outputs };
  const rename = (port: OvPort): OvPort => ({ ...port, name: port.name.replace(/:0$/, "") });
  return { inputs: inputs.map(rename), outputs: outputs.map(rename) };
}

/**
 * Describes a model's tensors as those of an ONNX model, so that completion, checks and batching are the same.
 * @throws ServerError UNSUPPORTED naming a tensor whose elements cannot be served.
 */
export function toSignature(ports: OvPorts, modelName: string): SessionSignature {
  return {
    inputs: ports.inputs.map((port) => describe(port, "input", modelName)),
    outputs: ports.outputs.map((port) => describe(port, "output", modelName)),
    overridableInitializers: [],
  };
}

function describe(port: OvPort, kind: "input" | "output", modelName: string): TensorSignature {
  const { name, elementType, elementCode, dims } = port;
  if (elementType === undefined) {
    throw new ServerError(
      "UNSUPPORTED",
      `unable to load model '${modelName}', ${kind} '${name}' has OpenVINO element type number ` +
        `${elementCode}, which cannot be served: expected BOOL, INT8 to INT64, UINT8 to UINT64, ` +
        `FP16, BF16, FP32 or FP64. Strings and types below a byte need a model that converts ` +
        `them; models in ONNX with strings run on backend 'onnxruntime'`,
    );
  }
  return {
    name,
    onnxType: ONNX_TYPE.TENSOR,
    elementType: ELEMENT_TYPE_OF[elementType],
    dims,
    symbols: dims?.map(() => "") ?? [],
  };
}

const OV_TYPE_OF: ReadonlyMap<number, OvElementType> = new Map(
  Object.entries(ELEMENT_TYPE_OF).map(([type, code]) => [code, type as OvElementType]),
);

/** The library's element type of one that {@linkcode toSignature} gave. */
export function ovElementType(elementType: number): OvElementType {
  return OV_TYPE_OF.get(elementType)!;
}
