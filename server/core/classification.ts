import { encodeBytesTensor } from "../../proto/bytes_tensor.ts";
import type { Datatype } from "../../proto/datatype.ts";
import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";

const MAX_ELEMENTS_PER_ROW = 1_000_000;

/** How to rank one output. */
export interface ClassificationOptions {
  /** Classes to return per row, > 0. */
  readonly count: number;
  /** The first dimension is the batch. */
  readonly isBatched: boolean;
  /** Label by index; undefined or empty = none. */
  readonly labels: readonly string[] | undefined;
}

/**
 * Turns an output into its best classes: BYTES elements `<value>:<index>[:<label>]`, best first (http.md §9.6).
 * @throws ServerError INVALID_ARG when its datatype cannot be ranked or a row is too long.
 */
export function classify(tensor: Tensor, options: ClassificationOptions): Tensor {
  const hasRows = options.isBatched && tensor.shape.length > 0;
  const rows = hasRows ? tensor.shape[0]! : 1;
  const values = readValues(tensor);
  const rowLength = rows === 0 ? 0 : values.length / rows;
  if (rowLength > MAX_ELEMENTS_PER_ROW) {
    throw new ServerError("INVALID_ARG", "classification output tensor too large");
  }
  const count = Math.min(options.count, rowLength);
  const format = isFloat(tensor.datatype) ? formatFloat : String;
  const texts: string[] = [];
  for (let row = 0; row < rows; row++) {
    const start = row * rowLength;
    for (const index of topIndices(values, { start, length: rowLength, count })) {
      const label = options.labels?.[index] ?? "";
      texts.push(`${format(values[start + index]!)}:${index}${label === "" ? "" : `:${label}`}`);
    }
  }
  return {
    name: tensor.name,
    datatype: "BYTES",
    shape: hasRows ? [rows, count] : [count],
    data: encodeBytesTensor(texts),
  };
}

type Values = ArrayLike<number> | ArrayLike<bigint>;

const VIEWS: Partial<Record<Datatype, { from(buffer: ArrayBuffer): Values }>> = {
  UINT8: { from: (buffer) => new Uint8Array(buffer) },
  UINT16: { from: (buffer) => new Uint16Array(buffer) },
  UINT32: { from: (buffer) => new Uint32Array(buffer) },
  UINT64: { from: (buffer) => new BigUint64Array(buffer) },
  INT8: { from: (buffer) => new Int8Array(buffer) },
  INT16: { from: (buffer) => new Int16Array(buffer) },
  INT32: { from: (buffer) => new Int32Array(buffer) },
  INT64: { from: (buffer) => new BigInt64Array(buffer) },
  FP32: { from: (buffer) => new Float32Array(buffer) },
  FP64: { from: (buffer) => new Float64Array(buffer) },
};

function readValues(tensor: Tensor): Values {
  const view = VIEWS[tensor.datatype];
  if (view === undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `class result not available for output due to unsupported type '${tensor.datatype}'`,
    );
  }
  // A copy, because the data may lie at any alignment.
  return view.from(new Uint8Array(tensor.data).buffer);
}

function isFloat(datatype: Datatype): boolean {
  return datatype === "FP32" || datatype === "FP64";
}

/** Six decimals whatever the size, as C's `%f` prints. */
function formatFloat(value: number | bigint): string {
  const number = Number(value);
  if (Number.isNaN(number)) return "nan";
  if (!Number.isFinite(number)) return number > 0 ? "inf" : "-inf";
  if (Object.is(number, -0)) return "-0.000000";
  if (Math.abs(number) >= 1e21) return `${BigInt(number)}.000000`;
  // Only odd multiples of 1/128 lie halfway between two numbers of six decimals: these go to the even one.
  if (Math.abs(number * 128) % 2 !== 1) return number.toFixed(6);
  const exact = number.toFixed(7);
  return Number(exact.at(-2)) % 2 === 0 ? exact.slice(0, -1) : number.toFixed(6);
}

/** Indices of the largest values, largest first; equal ones by index, NaN last. */
function topIndices(
  values: Values,
  row: { readonly start: number; readonly length: number; readonly count: number },
): number[] {
  const isBetter = (a: number, b: number): boolean => {
    const left = values[row.start + a]!;
    const right = values[row.start + b]!;
    if (left > right) return true;
    if (left < right) return false;
    const leftNan = left !== left;
    if (leftNan !== (right !== right)) return !leftNan;
    return a < b;
  };
  if (row.count * 8 >= row.length) {
    const all = Array.from({ length: row.length }, (_, index) => index);
    return all.sort((a, b) => isBetter(a, b) ? -1 : 1).slice(0, row.count);
  }
  return selectBest(row.length, row.count, isBetter);
}

/** The best `count` of many, kept in a heap whose root is the worst of them. */
function selectBest(
  length: number,
  count: number,
  isBetter: (a: number, b: number) => boolean,
): number[] {
  const heap: number[] = [];
  for (let index = 0; index < length; index++) {
    if (heap.length < count) {
      heap.push(index);
      siftUp(heap, isBetter);
    } else if (isBetter(index, heap[0]!)) {
      heap[0] = index;
      siftDown(heap, isBetter);
    }
  }
  return heap.sort((a, b) => isBetter(a, b) ? -1 : 1);
}

function siftUp(heap: number[], isBetter: (a: number, b: number) => boolean): void {
  let index = heap.length - 1;
  while (index > 0) {
    const parent = (index - 1) >> 1;
    if (!isBetter(heap[parent]!, heap[index]!)) return;
    [heap[parent], heap[index]] = [heap[index]!, heap[parent]!];
    index = parent;
  }
}

function siftDown(heap: number[], isBetter: (a: number, b: number) => boolean): void {
  let index = 0;
  for (;;) {
    let child = 2 * index + 1;
    if (child >= heap.length) return;
    if (child + 1 < heap.length && isBetter(heap[child]!, heap[child + 1]!)) child++;
    if (!isBetter(heap[index]!, heap[child]!)) return;
    [heap[index], heap[child]] = [heap[child]!, heap[index]!];
    index = child;
  }
}
