import type { BatchInputRule } from "./batch_input.ts";
import { type Datatype, DATATYPES } from "../proto/datatype.ts";
import { DataType, type ModelConfig } from "../proto/gen/model_config_pb.ts";
import { ONNX_TYPE } from "../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../ffi/onnxruntime/signature.ts";
import { datatypeOfElement } from "./onnx_tensor_types.ts";

/** An input of the model as runs need it. */
export interface InputPlan {
  readonly name: string;
  readonly datatype: Datatype;
  readonly elementType: number;
  /** Bytes of one element; 0 for strings. */
  readonly elementSize: number;
  /** Undefined when the model does not tell. */
  readonly rank: number | undefined;
  /** False for initializers: they have a value when none is given. */
  readonly isRequired: boolean;
  /** Requests are joined element by element, whatever their shapes. */
  readonly isRagged: boolean;
}

/** Where the size of one output dimension comes from. */
export type DimSource =
  | number
  /** Rows of the batch. */
  | "rows"
  /** A dimension of an input with the same symbol. */
  | { readonly input: string; readonly dim: number };

/** An output of the model as runs need it. */
export interface OutputPlan {
  readonly name: string;
  readonly datatype: Datatype;
  readonly elementType: number;
  readonly elementSize: number;
  /** Sources of all dimensions; undefined when the shape is known only after the run. */
  readonly dims: readonly DimSource[] | undefined;
  /** The dimensions, each 1, that the configuration gives a scalar of the model. */
  readonly scalarDims: readonly number[] | undefined;
  /** Set when the output is cut by the shapes of an input (config.md §9). */
  readonly scatter: ScatterRule | undefined;
}

export interface ScatterRule {
  readonly sourceInput: string;
  /** Configured dims with the batch dimension in front. */
  readonly dims: readonly number[];
}

/** A generated input and the request input it is made from. */
export interface BatchInputPlan extends BatchInputRule {
  readonly sourceInput: string;
}

/** Everything about a model that does not change from run to run. */
export interface RunPlan {
  readonly isBatching: boolean;
  readonly inputs: ReadonlyMap<string, InputPlan>;
  readonly outputs: ReadonlyMap<string, OutputPlan>;
  readonly batchInputs: readonly BatchInputPlan[];
}

/** Prepares the runs of a model whose configuration was checked against its signature. */
export function createRunPlan(config: ModelConfig, signature: SessionSignature): RunPlan {
  const isBatching = config.maxBatchSize > 0;
  const ragged = new Set(
    isBatching ? config.input.filter((each) => each.allowRaggedBatch).map(({ name }) => name) : [],
  );
  const inputs = new Map<string, InputPlan>();
  for (const tensor of signature.inputs) addInput(tensor, true);
  for (const tensor of signature.overridableInitializers) addInput(tensor, false);
  const outputs = new Map<string, OutputPlan>();
  for (const tensor of signature.outputs) {
    const plan = planOutput(tensor, { config, signature, isRagged: ragged.size > 0 });
    if (plan !== undefined) outputs.set(plan.name, plan);
  }
  return {
    isBatching,
    inputs,
    outputs,
    batchInputs: planBatchInputs(config),
  };

  function addInput(tensor: TensorSignature, isRequired: boolean): void {
    const datatype = datatypeOfElement(tensor.elementType);
    if (tensor.onnxType !== ONNX_TYPE.TENSOR || datatype === undefined) return;
    inputs.set(tensor.name, {
      name: tensor.name,
      datatype,
      elementType: tensor.elementType,
      elementSize: DATATYPES[datatype].byteSize,
      rank: tensor.dims?.length,
      isRequired,
      isRagged: ragged.has(tensor.name),
    });
  }
}

function planOutput(
  tensor: TensorSignature,
  { config, signature, isRagged }: {
    readonly config: ModelConfig;
    readonly signature: SessionSignature;
    readonly isRagged: boolean;
  },
): OutputPlan | undefined {
  const datatype = datatypeOfElement(tensor.elementType);
  if (tensor.onnxType !== ONNX_TYPE.TENSOR || datatype === undefined) return undefined;
  const isBatching = config.maxBatchSize > 0;
  const configured = config.output.find(({ name }) => name === tensor.name);
  const rule = config.batchOutput.find(({ targetName }) => targetName.includes(tensor.name));
  const elementSize = DATATYPES[datatype].byteSize;
  return {
    name: tensor.name,
    datatype,
    elementType: tensor.elementType,
    elementSize,
    dims: elementSize === 0
      ? undefined
      : findDimSources(tensor, signature, isBatching && !isRagged),
    scalarDims: isBatching || configured === undefined || configured.reshape !== undefined ||
        configured.dims.some((dim) => dim !== 1n)
      ? undefined
      : configured.dims.map(Number),
    scatter: rule === undefined ? undefined : {
      sourceInput: rule.sourceInput[0] ?? "",
      dims: [-1, ...configured?.dims.map(Number) ?? []],
    },
  };
}

function findDimSources(
  tensor: TensorSignature,
  signature: SessionSignature,
  firstIsRows: boolean,
): DimSource[] | undefined {
  const sources: DimSource[] = [];
  for (const [index, dim] of (tensor.dims ?? [-1]).entries()) {
    const source = dim >= 0 ? dim : findSymbol(signature, tensor.symbols[index]) ??
      (index === 0 && firstIsRows && tensor.dims !== undefined ? "rows" : undefined);
    if (source === undefined) return undefined;
    sources.push(source);
  }
  return sources;
}

function findSymbol(
  signature: SessionSignature,
  symbol: string | undefined,
): DimSource | undefined {
  if (symbol === undefined || symbol === "") return undefined;
  for (const { name, symbols } of signature.inputs) {
    const dim = symbols.indexOf(symbol);
    if (dim >= 0) return { input: name, dim };
  }
  return undefined;
}

function planBatchInputs(config: ModelConfig): BatchInputPlan[] {
  return config.batchInput.flatMap(({ kind, targetName, dataType, sourceInput }) =>
    targetName.map((name) => ({
      kind,
      targetName: name,
      datatype: dataType === DataType.TYPE_INT32 ? "INT32" as const : "FP32" as const,
      sourceInput: sourceInput[0] ?? "",
    }))
  );
}
