import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import {
  type EngineSignature,
  type EngineTensor,
  trtTypeName,
} from "../../ffi/tensorrt/signature.ts";
import type { BatchInputRule } from "../batch_input.ts";
import { datatypeOfTrt } from "./tensor_types.ts";

/** A tensor of the engine as runs need it. */
export interface TensorPlan {
  readonly name: string;
  readonly datatype: Datatype;
  /** Bytes of one element. */
  readonly elementSize: number;
  readonly tensor: EngineTensor;
}

/** An input as runs need it. */
export interface InputPlan extends TensorPlan {
  /** Requests are joined element by element, whatever their shapes. */
  readonly isRagged: boolean;
}

/** How an output is cut by the shapes of an input (config.md §9). */
export interface ScatterRule {
  readonly sourceInput: string;
  /** Configured dims with the batch dimension in front. */
  readonly dims: readonly number[];
}

/** An output as runs need it. */
export interface OutputPlan extends TensorPlan {
  readonly scatter: ScatterRule | undefined;
  /** The dimensions, each 1, that the configuration gives a scalar of the model. */
  readonly scalarDims: readonly number[] | undefined;
}

/** A generated input and the request input it is made from. */
export interface BatchInputPlan extends BatchInputRule {
  readonly sourceInput: string;
}

/** Everything about a model that does not change from run to run. */
export interface RunPlan {
  readonly modelName: string;
  readonly isBatching: boolean;
  readonly inputs: ReadonlyMap<string, InputPlan>;
  readonly outputs: ReadonlyMap<string, OutputPlan>;
  readonly batchInputs: readonly BatchInputPlan[];
}

/**
 * Prepares the runs of a model whose configuration was checked against its engine.
 * @throws ServerError UNSUPPORTED for a tensor whose type has no counterpart in the protocol.
 */
export function createRunPlan(
  config: ModelConfig,
  signature: EngineSignature,
  modelName: string,
): RunPlan {
  const isBatching = config.maxBatchSize > 0;
  const inputs = new Map<string, InputPlan>();
  const outputs = new Map<string, OutputPlan>();
  for (const tensor of signature.tensors) {
    const plan = planTensor(tensor, modelName);
    if (tensor.isInput) {
      const configured = config.input.find(({ name }) => name === tensor.name);
      const isRagged = isBatching && configured?.allowRaggedBatch === true;
      inputs.set(tensor.name, { ...plan, isRagged });
    } else {
      outputs.set(tensor.name, { ...plan, ...planOutput(config, tensor) });
    }
  }
  const batchInputs = config.batchInput.flatMap(({ kind, targetName, dataType, sourceInput }) =>
    targetName.map((name) => ({
      kind,
      targetName: name,
      datatype: dataType === DataType.TYPE_INT32 ? "INT32" as const : "FP32" as const,
      sourceInput: sourceInput[0] ?? "",
    }))
  );
  return { modelName, isBatching, inputs, outputs, batchInputs };
}

function planTensor(tensor: EngineTensor, modelName: string): TensorPlan {
  const { name, type } = tensor;
  const datatype = datatypeOfTrt(type);
  if (datatype === undefined) {
    throw new ServerError(
      "UNSUPPORTED",
      `tensor '${name}' of model '${modelName}' cannot be served: its type ${trtTypeName(type)} ` +
        `has no counterpart`,
    );
  }
  return { name, datatype, elementSize: DATATYPES[datatype].byteSize, tensor };
}

function planOutput(
  config: ModelConfig,
  { name, dims }: EngineTensor,
): Pick<OutputPlan, "scatter" | "scalarDims"> {
  const configured = config.output.find((output) => output.name === name);
  const rule = config.batchOutput.find(({ targetName }) => targetName.includes(name));
  const isScalar = config.maxBatchSize === 0 && dims.length === 0;
  return {
    scatter: rule === undefined ? undefined : {
      sourceInput: rule.sourceInput[0] ?? "",
      dims: [-1, ...configured?.dims.map(Number) ?? []],
    },
    scalarDims: isScalar && configured !== undefined ? configured.dims.map(Number) : undefined,
  };
}

/** Bytes of a tensor in its format: packed dimensions are filled up to whole packs. */
export function formatByteSize(
  { tensor, elementSize }: TensorPlan,
  shape: readonly number[],
): number {
  const { vectorizedDim, componentsPerElement } = tensor;
  let size = elementSize;
  for (let index = 0; index < shape.length; index++) {
    const dim = shape[index]!;
    size *= index === vectorizedDim && componentsPerElement > 1
      ? Math.ceil(dim / componentsPerElement) * componentsPerElement
      : dim;
  }
  return size;
}
