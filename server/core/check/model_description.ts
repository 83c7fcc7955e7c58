import { clone } from "@bufbuild/protobuf";
import type { Backend } from "../../../backends/backend.ts";
import {
  DataType,
  ModelConfigSchema,
  type ModelInput,
  type ModelOutput,
} from "../../../proto/gen/model_config_pb.ts";
import type { ConfigSource } from "../config_complete.ts";

/** A tensor as the model itself has it. */
export interface DescribedTensor {
  readonly name: string;
  readonly dataType: DataType;
  /** As the configuration has to give them: without the batch dimension for a model that batches. */
  readonly dims: readonly bigint[];
  readonly isScalar: boolean;
}

/** What a model says about itself. */
export interface ModelDescription {
  readonly inputs: readonly DescribedTensor[];
  readonly outputs: readonly DescribedTensor[];
}

/**
 * Asks the backend what the model's inputs and outputs are, whatever the configuration says of them; undefined where
 * the backend cannot tell, or the model cannot have the batch size of the configuration.
 */
export async function describeModel(
  source: ConfigSource,
  backend: Backend,
): Promise<ModelDescription | undefined> {
  const config = clone(ModelConfigSchema, source.config);
  config.input = [];
  config.output = [];
  const wanted = config.maxBatchSize;
  try {
    await backend.autoComplete({ ...source, config });
  } catch {
    return undefined;
  }
  if (config.input.length === 0 || config.output.length === 0) return undefined;
  // The batch size was filled in: the configuration asks for none, so the first dimension is one like others.
  const prefix = wanted === 0 && config.maxBatchSize > 0 ? [-1n] : [];
  return {
    inputs: config.input.map((tensor) => described(tensor, prefix)),
    outputs: config.output.map((tensor) => described(tensor, prefix)),
  };
}

function described(tensor: ModelInput | ModelOutput, prefix: readonly bigint[]): DescribedTensor {
  const isReshaped = tensor.reshape !== undefined;
  const dims = isReshaped && prefix.length > 0 ? prefix : [...prefix, ...tensor.dims];
  return {
    name: tensor.name,
    dataType: tensor.dataType,
    dims,
    isScalar: isReshaped && prefix.length === 0,
  };
}

/** The tensor as a value of the text format. */
export function formatDescribed({ name, dataType, dims, isScalar }: DescribedTensor): string {
  const reshape = isScalar ? " reshape: { shape: [ ] }" : "";
  return `{ name: ${JSON.stringify(name)} data_type: ${DataType[dataType]} ` +
    `dims: ${formatDims(dims)}${reshape} }`;
}

/** Dims as a value of the text format. */
export function formatDims(dims: readonly bigint[]): string {
  return `[ ${dims.join(", ")} ]`;
}
