import type { Datatype } from "../../proto/datatype.ts";
import { encodeBytesTensor, LENGTH_PREFIX_BYTES, readLength } from "../../proto/bytes_tensor.ts";
import type { BytesElements, OutputArray, TensorArrays } from "./model_api.ts";

interface ArrayType {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): ArrayBufferView;
}

type Fixed = Exclude<Datatype, "BYTES">;

const ARRAY_TYPES: Readonly<Record<Fixed, ArrayType>> = {
  BOOL: Uint8Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  FP16: Float16Array,
  FP32: Float32Array,
  FP64: Float64Array,
  BF16: Uint16Array,
};

/** The datatypes in the order of their numbers between the threads. */
export const DATATYPE_ORDER: readonly Datatype[] = [
  ...Object.keys(ARRAY_TYPES) as Fixed[],
  "BYTES",
];

/** Bytes of one element; 0 for BYTES. */
export function elementBytes(datatype: Datatype): number {
  return datatype === "BYTES" ? 0 : ARRAY_TYPES[datatype].BYTES_PER_ELEMENT;
}

/** The elements in these bytes, a view; `byteOffset` is aligned to the elements. */
export function viewArray<Type extends Datatype>(
  datatype: Type,
  bytes: Uint8Array,
): TensorArrays[Type] {
  if (datatype === "BYTES") {
    return new EncodedElements(bytes) as BytesElements as unknown as TensorArrays[Type];
  }
  const type = ARRAY_TYPES[datatype as Fixed];
  const length = bytes.length / type.BYTES_PER_ELEMENT;
  return new type(bytes.buffer, bytes.byteOffset, length) as unknown as TensorArrays[Type];
}

/** Whether an array is one that this datatype may have. */
export function fitsDatatype(data: OutputArray, datatype: Datatype): boolean {
  if (datatype === "BYTES") return isBytesData(data);
  return data instanceof (ARRAY_TYPES[datatype] as unknown as new () => ArrayBufferView);
}

/** The datatype that an array has by itself; undefined for what is no array of a tensor. */
export function datatypeOfArray(data: OutputArray): Datatype | undefined {
  if (isBytesData(data)) return "BYTES";
  for (const datatype of DATATYPE_ORDER) {
    if (datatype !== "BOOL" && datatype !== "BF16" && fitsDatatype(data, datatype)) {
      return datatype;
    }
  }
  return undefined;
}

/** The bytes of a tensor's elements as the protocol has them; a view where possible. */
export function bytesOfArray(data: OutputArray): Uint8Array {
  if (data instanceof EncodedElements) return data.encoded;
  if (ArrayBuffer.isView(data)) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  return encodeBytesTensor(Array.isArray(data) ? data : [...data as Iterable<Uint8Array>]);
}

function isBytesData(data: OutputArray): boolean {
  if (data instanceof EncodedElements) return true;
  return Array.isArray(data) &&
    data.every((element) => typeof element === "string" || element instanceof Uint8Array);
}

/** Elements of a BYTES tensor over their encoded form. Positions are found once, when first asked for. */
class EncodedElements implements BytesElements {
  readonly encoded: Uint8Array;
  #starts: number[] | undefined;

  constructor(encoded: Uint8Array) {
    this.encoded = encoded;
  }

  get length(): number {
    return this.#positions().length;
  }

  bytes(index: number): Uint8Array {
    const start = this.#positions()[index];
    if (start === undefined) {
      throw new RangeError(`Element ${index} of a BYTES tensor of ${this.length} was asked for`);
    }
    return this.encoded.subarray(
      start,
      start + readLength(this.encoded, start - LENGTH_PREFIX_BYTES),
    );
  }

  text(index: number): string {
    return DECODER.decode(this.bytes(index));
  }

  texts(): string[] {
    return this.#positions().map((_, index) => this.text(index));
  }

  *[Symbol.iterator](): Iterator<Uint8Array> {
    for (let index = 0; index < this.length; index++) yield this.bytes(index);
  }

  #positions(): readonly number[] {
    return this.#starts ??= findElements(this.encoded);
  }
}

const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });

function findElements(encoded: Uint8Array): number[] {
  const starts: number[] = [];
  let offset = 0;
  while (offset + LENGTH_PREFIX_BYTES <= encoded.length) {
    const start = offset + LENGTH_PREFIX_BYTES;
    starts.push(start);
    offset = start + readLength(encoded, offset);
  }
  if (offset !== encoded.length) throw new RangeError("BYTES tensor ends inside an element");
  return starts;
}
