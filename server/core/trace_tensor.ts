import { DATATYPES } from "../../proto/datatype.ts";
import type { Tensor } from "../../proto/tensor.ts";

/** A tensor as it is written into a trace file. */
export interface TensorText {
  readonly name: string;
  /** Elements with commas between them; FP16 and BF16 are left out. */
  readonly data: string;
  readonly shape: string;
  readonly dtype: string;
}

type Reader = (view: DataView, offset: number) => number | bigint;

const READERS: Readonly<Record<string, Reader>> = {
  BOOL: (view, offset) => view.getUint8(offset) === 0 ? 0 : 1,
  UINT8: (view, offset) => view.getUint8(offset),
  UINT16: (view, offset) => view.getUint16(offset, true),
  UINT32: (view, offset) => view.getUint32(offset, true),
  UINT64: (view, offset) => view.getBigUint64(offset, true),
  INT8: (view, offset) => view.getInt8(offset),
  INT16: (view, offset) => view.getInt16(offset, true),
  INT32: (view, offset) => view.getInt32(offset, true),
  INT64: (view, offset) => view.getBigInt64(offset, true),
  FP32: (view, offset) => view.getFloat32(offset, true),
  FP64: (view, offset) => view.getFloat64(offset, true),
};

/**
 * The text of a tensor (observability.md §5.3), cut off after about `maxCharacters`; undefined when there is no room
 * at all.
 */
export function formatTensor(tensor: Tensor, maxCharacters: number): TensorText | undefined {
  if (maxCharacters <= 0) return undefined;
  const { name, datatype, shape } = tensor;
  const data = datatype === "BYTES"
    ? formatBytes(tensor.data, maxCharacters)
    : formatNumbers(tensor, maxCharacters);
  return { name, data, shape: shape.join(","), dtype: datatype };
}

function formatNumbers({ datatype, data }: Tensor, maxCharacters: number): string {
  const read = READERS[datatype];
  if (read === undefined) return "";
  const size = DATATYPES[datatype].byteSize;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const texts: string[] = [];
  let length = 0;
  for (let offset = 0; offset + size <= data.length && length < maxCharacters; offset += size) {
    const value = read(view, offset);
    const text = datatype === "FP32" ? formatFloat(Number(value)) : String(value);
    texts.push(text);
    length += text.length + 1;
  }
  return texts.join(",");
}

/** The shortest decimal that is the same float: 0.1, not 0.10000000149011612. */
function formatFloat(value: number): string {
  for (const digits of [7, 8]) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(value);
}

/** Each element in quotes. */
function formatBytes(data: Uint8Array, maxCharacters: number): string {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const decoder = new TextDecoder();
  const texts: string[] = [];
  let length = 0;
  let offset = 0;
  while (offset + 4 <= data.length && length < maxCharacters) {
    const size = view.getUint32(offset, true);
    offset += 4;
    const text = `"${decoder.decode(data.subarray(offset, Math.min(offset + size, data.length)))}"`;
    texts.push(text);
    length += text.length + 1;
    offset += size;
  }
  return texts.join(",");
}
