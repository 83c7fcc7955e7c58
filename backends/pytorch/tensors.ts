import { type Datatype, datatypeOfConfig } from "../../proto/datatype.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { allocateAligned } from "../../ffi/memory.ts";
import { ELEMENT_TYPE, ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../../ffi/onnxruntime/signature.ts";
import { SCALAR_TYPE, type TorchValue } from "../../ffi/pytorch/mod.ts";
import { joinBytes, joinedByteSize } from "../batch.ts";
import type { MergedInput } from "../onnx_merge_inputs.ts";
import type { OutputPlan } from "../onnx_run_plan.ts";
import { configuredInputs, configuredOutputs, type ConfiguredTensor } from "./configured_io.ts";
import type { Naming } from "./naming.ts";

const SCALAR_TYPE_OF: Readonly<Partial<Record<Datatype, number>>> = {
  BOOL: SCALAR_TYPE.bool,
  UINT8: SCALAR_TYPE.uint8,
  INT8: SCALAR_TYPE.int8,
  INT16: SCALAR_TYPE.int16,
  INT32: SCALAR_TYPE.int32,
  INT64: SCALAR_TYPE.int64,
  FP16: SCALAR_TYPE.float16,
  FP32: SCALAR_TYPE.float32,
  FP64: SCALAR_TYPE.float64,
  BF16: SCALAR_TYPE.bfloat16,
};

const ELEMENT_NAME_OF = {
  BOOL: "BOOL",
  UINT8: "UINT8",
  UINT16: "UINT16",
  UINT32: "UINT32",
  UINT64: "UINT64",
  INT8: "INT8",
  INT16: "INT16",
  INT32: "INT32",
  INT64: "INT64",
  FP16: "FLOAT16",
  FP32: "FLOAT",
  FP64: "DOUBLE",
  BYTES: "STRING",
  BF16: "BFLOAT16",
} as const;

/** What the configuration says, in the place of what a model would tell. */
export function signatureOfConfig(config: ModelConfig, naming: Naming): SessionSignature {
  const optional = new Set(
    naming.inputs.filter(({ isOptional }) => isOptional).map(({ name }) => name),
  );
  const describe = ({ name, dataType, dims }: ConfiguredTensor): TensorSignature => {
    const shape = dims === undefined
      ? undefined
      : [...config.maxBatchSize > 0 ? [-1] : [], ...dims.map(Number)];
    return {
      name,
      onnxType: ONNX_TYPE.TENSOR,
      elementType: ELEMENT_TYPE[ELEMENT_NAME_OF[datatypeOfConfig(dataType) ?? "FP32"]],
      dims: shape,
      symbols: shape?.map(() => "") ?? [],
    };
  };
  const inputs = configuredInputs(config);
  return {
    inputs: inputs.filter(({ name }) => !optional.has(name)).map(describe),
    outputs: configuredOutputs(config).map(describe),
    overridableInitializers: inputs.filter(({ name }) => optional.has(name)).map(describe),
  };
}

/** A copy: a model may write on its arguments, and return them. */
export function torchInput({ plan, parts, shape }: MergedInput, argument: string): TorchValue {
  const byteSize = joinedByteSize(parts);
  const isText = plan.datatype === "BYTES";
  const expected = shape.reduce((product, dim) => product * dim, plan.elementSize);
  if (!isText && byteSize !== expected) {
    throw new ServerError(
      "INVALID_ARG",
      `input '${plan.name}' has ${byteSize} bytes, its shape and datatype tell ${expected}`,
    );
  }
  const data = allocateAligned(byteSize).subarray(0, byteSize);
  joinBytes(parts, data);
  const scalarType = SCALAR_TYPE_OF[plan.datatype] ?? 0;
  return { name: argument, kind: isText ? "strings" : "tensor", scalarType, shape, data };
}

/** @throws ServerError INVALID_ARG when the model returned another type, or a scalar. */
export function torchOutput(plan: OutputPlan, found: TorchValue, isBatching: boolean): Tensor {
  const { name, datatype } = plan;
  const isText = datatype === "BYTES";
  if (
    isText !== (found.kind === "strings") ||
    (!isText && SCALAR_TYPE_OF[datatype] !== found.scalarType)
  ) {
    throw new ServerError(
      "INVALID_ARG",
      `configuration expects datatype ${configName(datatype)} for output '${name}', model ` +
        `provides ${providedType(found)}`,
    );
  }
  if (isText) {
    return {
      name,
      datatype,
      shape: isBatching ? [...found.shape, 1] : found.shape,
      data: found.data,
    };
  }
  if (found.shape.length === 0 && plan.scalarDims === undefined) {
    throw new ServerError("INVALID_ARG", `output '${name}' is a scalar which is not supported.`);
  }
  return { name, datatype, shape: found.shape, data: found.data };
}

function configName(datatype: Datatype): string {
  return datatype === "BYTES" ? "TYPE_STRING" : `TYPE_${datatype}`;
}

function providedType({ kind, scalarType }: TorchValue): string {
  if (kind === "strings") return "TYPE_STRING";
  const datatype = (Object.keys(SCALAR_TYPE_OF) as Datatype[])
    .find((each) => SCALAR_TYPE_OF[each] === scalarType);
  return datatype === undefined
    ? `type ${scalarType} of PyTorch, which clients cannot be given`
    : configName(datatype);
}
