import { ServerError } from "../../proto/status.ts";
import { ELEMENT_TYPE, ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../../ffi/onnxruntime/signature.ts";
import { TF_DATA_TYPE, tfDataTypeName } from "../../ffi/tensorflow/mod.ts";
import type { GraphSignature, SignatureTensor } from "./saved_model.ts";

const ELEMENT_TYPE_OF: ReadonlyMap<number, number> = new Map([
  [TF_DATA_TYPE.FLOAT, ELEMENT_TYPE.FLOAT],
  [TF_DATA_TYPE.DOUBLE, ELEMENT_TYPE.DOUBLE],
  [TF_DATA_TYPE.INT32, ELEMENT_TYPE.INT32],
  [TF_DATA_TYPE.UINT8, ELEMENT_TYPE.UINT8],
  [TF_DATA_TYPE.INT16, ELEMENT_TYPE.INT16],
  [TF_DATA_TYPE.INT8, ELEMENT_TYPE.INT8],
  [TF_DATA_TYPE.STRING, ELEMENT_TYPE.STRING],
  [TF_DATA_TYPE.INT64, ELEMENT_TYPE.INT64],
  [TF_DATA_TYPE.BOOL, ELEMENT_TYPE.BOOL],
  [TF_DATA_TYPE.BFLOAT16, ELEMENT_TYPE.BFLOAT16],
  [TF_DATA_TYPE.UINT16, ELEMENT_TYPE.UINT16],
  [TF_DATA_TYPE.HALF, ELEMENT_TYPE.FLOAT16],
  [TF_DATA_TYPE.UINT32, ELEMENT_TYPE.UINT32],
  [TF_DATA_TYPE.UINT64, ELEMENT_TYPE.UINT64],
]);

const TF_TYPE_OF: ReadonlyMap<number, number> = new Map(
  [...ELEMENT_TYPE_OF].map(([type, elementType]) => [elementType, type]),
);

/** The library's data type of an element type that {@linkcode toSessionSignature} gave. */
export function tfDataTypeOf(elementType: number): number {
  return TF_TYPE_OF.get(elementType)!;
}

/**
 * Describes a signature's tensors as those of an ONNX model, so that completion, checks and batching are the same.
 * @throws ServerError UNSUPPORTED naming a tensor whose elements cannot be served, or that is not dense.
 */
export function toSessionSignature(
  { inputs, outputs }: Pick<GraphSignature, "inputs" | "outputs">,
  modelName: string,
): SessionSignature {
  return {
    inputs: inputs.map((tensor) => describe(tensor, "input", modelName)),
    outputs: outputs.map((tensor) => describe(tensor, "output", modelName)),
    overridableInitializers: [],
  };
}

function describe(
  { name, tensorName, dataType, dims }: SignatureTensor,
  kind: "input" | "output",
  modelName: string,
): TensorSignature {
  const place = `unable to load model '${modelName}', ${kind} '${name}'`;
  if (tensorName === "") {
    throw new ServerError(
      "UNSUPPORTED",
      `${place} is a sparse or ragged tensor, which cannot be served: export a signature with dense ` +
        `tensors (tf.sparse.from_dense, RaggedTensor.to_tensor)`,
    );
  }
  const elementType = ELEMENT_TYPE_OF.get(dataType);
  if (elementType === undefined) {
    throw new ServerError(
      "UNSUPPORTED",
      `${place} has data type ${
        tfDataTypeName(dataType)
      }, which cannot be served: expected BOOL, ` +
        `INT8 to INT64, UINT8 to UINT64, FP16, BF16, FP32, FP64 or strings; export a signature that ` +
        `casts it`,
    );
  }
  const symbols = dims?.map(() => "") ?? [];
  return { name, onnxType: ONNX_TYPE.TENSOR, elementType, dims, symbols };
}
