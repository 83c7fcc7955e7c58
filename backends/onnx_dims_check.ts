import { ServerError } from "../proto/status.ts";
import { formatShape } from "../proto/tensor.ts";
import type { TensorSignature } from "../ffi/onnxruntime/signature.ts";

/** The tensors of a model by name, and what the checks need to know of its configuration. */
export interface ModelTensors {
  readonly modelName: string;
  readonly isBatching: boolean;
  readonly inputs: ReadonlyMap<string, TensorSignature>;
  readonly outputs: ReadonlyMap<string, TensorSignature>;
  readonly initializers: ReadonlyMap<string, TensorSignature>;
}

/**
 * Compares dims of the configuration with those of the model. With `isExact` a free dimension agrees with a free one
 * only; else a free dimension of the model takes any.
 * @throws ServerError INVALID_ARG with both shapes.
 */
export function checkDims(
  tensor: TensorSignature,
  configDims: readonly bigint[],
  { tensors, isExact }: { readonly tensors: ModelTensors; readonly isExact: boolean },
): void {
  const { dims: modelDims, name } = tensor;
  if (modelDims === undefined) return;
  const { modelName, isBatching } = tensors;
  const dims = configDims.map(Number);
  const expected = formatShape(modelDims);
  if (isBatching && modelDims[0] !== -1) {
    refuse(
      `model '${modelName}', tensor '${name}': for the model to support batching the shape should ` +
        `have at least 1 dimension and the first dimension must be -1; but shape expected by the ` +
        `model is ${expected}`,
    );
  }
  if (!isBatching && modelDims.length === 0) return checkScalar(tensor, dims, modelName);
  const complete = isBatching ? [-1, ...dims] : dims;
  if (dimsAgree(modelDims, complete, isExact)) return;
  const shape = isBatching
    ? `(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor ` +
      `shape, making complete shape ${formatShape(complete)})`
    : `(shape ${formatShape(complete)})`;
  refuse(
    `model '${modelName}', tensor '${name}': the model expects ${modelDims.length} dimensions ` +
      `(shape ${expected}) but the model configuration specifies ${complete.length} dimensions ` +
      shape,
  );
}

function dimsAgree(
  modelDims: readonly number[],
  dims: readonly number[],
  isExact: boolean,
): boolean {
  return modelDims.length === dims.length &&
    modelDims.every((dim, index) => (!isExact && dim === -1) || dim === dims[index]);
}

function checkScalar(tensor: TensorSignature, dims: readonly number[], modelName: string): void {
  if (dims.every((dim) => dim === 1)) return;
  refuse(
    `unable to load model '${modelName}', scalar tensor '${tensor.name}', should only provide 1 in ` +
      `the model configuration when the model doesn't support batching. Model configuration ` +
      `provided: ${formatShape(dims)}.`,
  );
}

function refuse(message: string): never {
  throw new ServerError("INVALID_ARG", message);
}
