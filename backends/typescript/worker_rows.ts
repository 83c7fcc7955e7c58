import type { BytesElements, ModelTensor, OutputTensor } from "./model_api.ts";
import { bytesOfArray, viewArray } from "./tensor_arrays.ts";
import { codedError } from "./worker_errors.ts";

/** Tensors joined along their first dimension; of one tensor itself. @throws Error INVALID_ARG when they do not fit. */
export function concatTensors(tensors: readonly ModelTensor[], name: string): ModelTensor {
  const first = tensors[0];
  if (first === undefined) throw codedError("INVALID_ARG", "there are no requests to join");
  if (tensors.length === 1) return first;
  const rest = first.shape.slice(1).join(",");
  let rows = 0;
  for (const { shape } of tensors) {
    if (shape.length === 0 || shape.slice(1).join(",") !== rest) {
      throw codedError(
        "INVALID_ARG",
        `inputs '${name}' of the shapes [${first.shape}] and [${shape}] cannot be joined`,
      );
    }
    rows += shape[0]!;
  }
  const parts = tensors.map(({ data }) => bytesOfArray(data));
  const joined = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  const { datatype } = first;
  const shape = [rows, ...first.shape.slice(1)];
  return { datatype, shape, data: viewArray(datatype, joined) } as ModelTensor;
}

/** A tensor cut along its first dimension into so many rows each, views of it. */
export function splitTensor(tensor: OutputTensor, rowCounts: readonly number[]): OutputTensor[] {
  const rows = rowCounts.reduce((sum, count) => sum + count, 0);
  const [total = 0, ...rest] = tensor.shape;
  if (total !== rows) {
    throw codedError(
      "INVALID_ARG",
      `a tensor of the shape [${tensor.shape}] cannot be split into ${rows} rows`,
    );
  }
  const elementsPerRow = rest.reduce((product, dim) => product * dim, 1);
  let start = 0;
  return rowCounts.map((count) => {
    const end = start + count * elementsPerRow;
    const data = cut(tensor, start, end);
    start = end;
    return { ...tensor, shape: [count, ...rest], data };
  });
}

function cut({ data }: OutputTensor, start: number, end: number): OutputTensor["data"] {
  if (ArrayBuffer.isView(data)) return data.subarray(start, end);
  if (Array.isArray(data)) return data.slice(start, end);
  const elements = data as BytesElements;
  return Array.from({ length: end - start }, (_, index) => elements.bytes(start + index));
}
