import { type Datatype, isDatatype } from "../../proto/datatype.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { FrameReader } from "./frame_reader.ts";
import type { FrameWriter } from "./frame_writer.ts";
import type { ModelTensor, OutputArray, OutputTensor, TensorOf } from "./model_api.ts";
import {
  bytesOfArray,
  datatypeOfArray,
  elementBytes,
  fitsDatatype,
  viewArray,
} from "./tensor_arrays.ts";
import { codedError } from "./worker_errors.ts";

/** A tensor ready to be written into a frame. */
export interface EncodedTensor {
  readonly name: string;
  readonly datatype: Datatype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** Datatype and dims that the configuration gives an output, with the batch dimension as -1. */
export interface ConfiguredOutput {
  readonly datatype: Datatype | undefined;
  readonly shape: readonly number[];
}

/** What a model sees of a tensor. */
export function toModelTensor({ datatype, shape, data }: Tensor): ModelTensor {
  return { datatype, shape, data: viewArray(datatype, data) } as ModelTensor;
}

/** The tensors of a frame by name: views into it, or copies. */
export function readTensors(reader: FrameReader, areCopied = false): Record<string, ModelTensor> {
  const tensors: Record<string, ModelTensor> = Object.create(null);
  for (let left = reader.u32(); left > 0; left--) {
    const name = reader.text();
    const tensor = reader.tensor(name);
    tensors[name] = toModelTensor(areCopied ? { ...tensor, data: tensor.data.slice() } : tensor);
  }
  return tensors;
}

/** Writes tensors as `readTensors` reads them. */
export function writeTensors(frame: FrameWriter, tensors: readonly EncodedTensor[]): void {
  frame.u32(tensors.length);
  for (const { name, datatype, shape, bytes } of tensors) {
    frame.text(name).tensor(datatype, shape, bytes);
  }
}

/** The tensor of that name and datatype. @throws Error with `code` when there is none. */
export function pickTensor<Type extends Datatype>(
  tensors: Readonly<Record<string, ModelTensor>>,
  wanted: { readonly name: string; readonly datatype: Type; readonly what: string },
  code: "INVALID_ARG" | "INTERNAL",
): TensorOf<Type> {
  const { name, datatype, what } = wanted;
  const tensor = tensors[name];
  if (tensor === undefined) {
    const names = Object.keys(tensors).map((each) => `'${each}'`).join(", ");
    throw codedError(code, `there is no ${what} '${name}', there are ${names || "none"}`);
  }
  if (tensor.datatype !== datatype) {
    if (!isDatatype(datatype)) {
      throw new TypeError(
        `expected the datatype of ${what} '${name}' as second argument, such as ` +
          `${what}("${name}", "${tensor.datatype}"), got ${shown(datatype)}`,
      );
    }
    throw codedError(
      code,
      `expected ${what} '${name}' to be ${datatype}, got ${tensor.datatype}`,
    );
  }
  return tensor as TensorOf<Type>;
}

/** @throws TypeError when it is no tensor, or one whose array has another number of elements than its shape. */
export function encodeTensor(
  name: string,
  tensor: OutputTensor,
  configured?: ConfiguredOutput,
): EncodedTensor {
  if (typeof tensor !== "object" || tensor === null) {
    throw new TypeError(`Tensor '${name}' must be { shape, data }, got ${shown(tensor)}`);
  }
  const { shape, data } = tensor;
  const datatype = resolveDatatype(name, tensor, configured);
  const count = countElements(name, shape);
  const bytes = bytesOfArray(data);
  const length = lengthOf(data);
  if (length !== count) {
    throw new TypeError(
      `Tensor '${name}' has the shape [${
        shape.join(",")
      }], which takes ${count} elements, but its ` +
        `data has ${length}`,
    );
  }
  return { name, datatype, shape, bytes };
}

function resolveDatatype(
  name: string,
  { datatype, data }: OutputTensor,
  configured: ConfiguredOutput | undefined,
): Datatype {
  const wanted = configured?.datatype;
  if (datatype === undefined) {
    if (wanted !== undefined && fitsDatatype(data, wanted)) return wanted;
    const own = datatypeOfArray(data);
    if (own !== undefined && wanted === undefined) return own;
    throw new TypeError(
      own === undefined
        ? `Data of tensor '${name}' must be a typed array or a list of texts or byte strings, got ` +
          shown(data)
        : `Output '${name}' is configured as ${wanted}, but its data is ${shown(data)} (${own})`,
    );
  }
  if (!isKnown(datatype) || !fitsDatatype(data, datatype)) {
    throw new TypeError(
      `Tensor '${name}' is said to be ${datatype}, but its data is ${shown(data)}`,
    );
  }
  if (wanted !== undefined && wanted !== datatype) {
    throw new TypeError(
      `Output '${name}' is configured as ${wanted}, but is said to be ${datatype}`,
    );
  }
  return datatype;
}

function isKnown(datatype: Datatype): boolean {
  return datatype === "BYTES" || elementBytesOrNone(datatype) !== undefined;
}

function elementBytesOrNone(datatype: Datatype): number | undefined {
  try {
    return elementBytes(datatype);
  } catch {
    return undefined;
  }
}

function countElements(name: string, shape: readonly number[]): number {
  if (!Array.isArray(shape) || !shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) {
    throw new TypeError(
      `Shape of tensor '${name}' must be a list of whole numbers from 0 on, got ${shown(shape)}`,
    );
  }
  return shape.reduce((product, dim) => product * dim, 1);
}

/** @throws TypeError when an output does not have the dims that are configured, -1 being any. */
export function checkShape({ name, shape }: EncodedTensor, configured: ConfiguredOutput): void {
  const expected = configured.shape;
  const fits = shape.length === expected.length &&
    shape.every((dim, index) => expected[index]! < 0 || dim === expected[index]);
  if (fits) return;
  throw new TypeError(
    `Output '${name}' must have the shape [${expected.join(",")}], got [${shape.join(",")}]`,
  );
}

function lengthOf(data: OutputArray): number {
  return (data as { readonly length: number }).length;
}

function shown(value: unknown): string {
  if (ArrayBuffer.isView(value)) return `a ${value.constructor.name}`;
  return Deno.inspect(value, { depth: 1, iterableLimit: 4, strAbbreviateSize: 40 });
}
