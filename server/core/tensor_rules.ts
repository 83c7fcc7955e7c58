import type { ModelConfig, ModelInput, ModelOutput } from "../../proto/gen/model_config_pb.ts";
import { type Datatype, datatypeOfConfig, DATATYPES } from "../../proto/datatype.ts";
import type { TensorDescription } from "../../proto/infer.ts";

/** What one input of the configuration demands, prepared for the check of every request. */
export interface InputRule {
  readonly name: string;
  readonly datatype: Datatype;
  /** Bytes of one element; 0 = BYTES. */
  readonly elementSize: number;
  /** Dimensions without the batch dimension, -1 = any. */
  readonly dims: readonly number[];
  /** Dimensions the model sees instead; undefined = the same. */
  readonly reshape: readonly number[] | undefined;
  readonly isOptional: boolean;
  /** Requests in one batch must agree in the shape of this input. */
  readonly comparesShape: boolean;
  /** Requests in one batch must agree in the content of this input too. */
  readonly comparesContent: boolean;
  /**
   * The input holds sizes. Its shape has no batch dimension: where the model batches, the batch size is its first value,
   * in front of those of the configuration.
   */
  readonly isShapeTensor?: boolean;
  /** The size in bytes follows the format of the engine, not the shape: the backend checks it. */
  readonly isNonLinear?: boolean;
}

/** What one output of the configuration says about shapes. */
export interface OutputRule {
  readonly name: string;
  readonly datatype: Datatype;
  readonly dims: readonly number[];
  readonly reshape: readonly number[] | undefined;
}

/** Inputs and outputs of one model, prepared once at load. */
export interface TensorRules {
  readonly model: string;
  readonly maxBatchSize: number;
  readonly inputs: readonly InputRule[];
  readonly inputByName: ReadonlyMap<string, InputRule>;
  readonly requiredCount: number;
  readonly hasShapeTensors?: boolean;
  readonly outputs: readonly OutputRule[];
  readonly outputByName: ReadonlyMap<string, OutputRule>;
  readonly outputNames: readonly string[];
  /** True when some output is shown in another shape than the model gives. */
  readonly reshapesOutputs: boolean;
}

/** Prepares the rules of a complete configuration. */
export function createTensorRules(config: ModelConfig): TensorRules {
  const inputs = config.input.map(inputRule);
  const outputs = config.output.map(outputRule);
  return {
    model: config.name,
    maxBatchSize: config.maxBatchSize,
    inputs,
    inputByName: new Map(inputs.map((rule) => [rule.name, rule])),
    requiredCount: inputs.filter((rule) => !rule.isOptional).length,
    hasShapeTensors: inputs.some((rule) => rule.isShapeTensor),
    outputs,
    outputByName: new Map(outputs.map((rule) => [rule.name, rule])),
    outputNames: outputs.map((rule) => rule.name),
    reshapesOutputs: outputs.some((rule) => rule.reshape !== undefined),
  };
}

function inputRule(input: ModelInput): InputRule {
  const datatype = requireDatatype(input.name, datatypeOfConfig(input.dataType));
  const dims = input.dims.map(Number);
  return {
    name: input.name,
    datatype,
    elementSize: DATATYPES[datatype].byteSize,
    dims,
    reshape: input.reshape?.shape.map(Number),
    isOptional: input.optional,
    comparesShape: (dims.includes(-1) && !input.allowRaggedBatch) || input.isShapeTensor,
    comparesContent: input.isShapeTensor,
    ...(input.isShapeTensor ? { isShapeTensor: true } : {}),
    ...(input.isNonLinearFormatIo ? { isNonLinear: true } : {}),
  };
}

function outputRule(output: ModelOutput): OutputRule {
  return {
    name: output.name,
    datatype: requireDatatype(output.name, datatypeOfConfig(output.dataType)),
    dims: output.dims.map(Number),
    reshape: output.reshape?.shape.map(Number),
  };
}

function requireDatatype(name: string, datatype: Datatype | undefined): Datatype {
  if (datatype === undefined) throw new TypeError(`Tensor '${name}' has no datatype`);
  return datatype;
}

/** Inputs or outputs as metadata shows them: in front of the dims a -1 when the model batches (http.md §4). */
export function describeTensors(
  rules: readonly {
    readonly name: string;
    readonly datatype: Datatype;
    readonly dims: readonly number[];
  }[],
  maxBatchSize: number,
): TensorDescription[] {
  return rules.map(({ name, datatype, dims }) => ({
    name,
    datatype,
    shape: maxBatchSize > 0 ? [-1, ...dims] : [...dims],
  }));
}

/**
 * Replaces the dimensions of `shape` behind the first `leading` ones, which match `from`, by those of `to`; variable
 * dimensions keep their sizes, in order.
 */
export function reshapeTo(
  shape: readonly number[],
  leading: number,
  rule: { readonly from: readonly number[]; readonly to: readonly number[] },
): number[] {
  const variable: number[] = [];
  rule.from.forEach((dim, index) => {
    if (dim === -1) variable.push(shape[leading + index] ?? 1);
  });
  const result = shape.slice(0, leading);
  for (const dim of rule.to) result.push(dim === -1 ? variable.shift() ?? 1 : dim);
  return result;
}
