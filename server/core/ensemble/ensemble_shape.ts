import type { Tensor } from "../../../proto/tensor.ts";

/** What a reader of an ensemble tensor expects: the model that reads it, or the ensemble for its outputs. */
export interface TensorReader {
  /** Name of the tensor there. */
  readonly name: string;
  /** Without the batch dimension, -1 = any. */
  readonly dims: readonly number[];
  /** The reader has a batch dimension in front. */
  readonly isBatched: boolean;
}

/**
 * The tensor as its reader wants it: under its name, with a batch dimension added or taken away between models that
 * batch and models that do not (scheduling.md §5.3). The bytes stay where they are.
 */
export function convertTensor(tensor: Tensor, isBatched: boolean, reader: TensorReader): Tensor {
  const { datatype, data } = tensor;
  return {
    name: reader.name,
    datatype,
    shape: convertShape(tensor.shape, isBatched, reader),
    data,
  };
}

function convertShape(
  shape: readonly number[],
  isBatched: boolean,
  reader: TensorReader,
): readonly number[] {
  if (isBatched === reader.isBatched) return shape;
  const fits = matchesDims(shape, reader.dims);
  if (reader.isBatched) return fits ? [1, ...shape] : shape;
  return !fits && shape[0] === 1 ? shape.slice(1) : shape;
}

/** True when both have the same number of dimensions, and each is the same or -1 in one of them. */
export function matchesDims(left: readonly number[], right: readonly number[]): boolean {
  if (left.length !== right.length) return false;
  return left.every((dim, index) => dim === right[index] || dim === -1 || right[index] === -1);
}
