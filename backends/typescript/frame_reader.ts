import type { ParameterValue } from "../../proto/infer.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { alignTo64 } from "./block_ring.ts";
import { PARAMETER_KIND } from "./frame_writer.ts";
import { DATATYPE_ORDER, elementBytes } from "./tensor_arrays.ts";

const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });
/** Up to here a loop is faster than the decoder. */
const SHORT_TEXT_BYTES = 16;

/** Reads the fields of one frame in the order in which they were written. */
export class FrameReader {
  readonly #buffer: ArrayBufferLike;
  readonly #view: DataView;
  readonly #bytes: Uint8Array;
  readonly #dataStart: number;
  readonly #enclosed: readonly SharedArrayBuffer[];
  #at: number;

  /** A frame that begins at `offset`; `enclosed`: memory of tensors beside it. */
  constructor(
    buffer: ArrayBufferLike,
    offset: number,
    enclosed: readonly SharedArrayBuffer[] = [],
  ) {
    this.#enclosed = enclosed;
    this.#buffer = buffer;
    this.#view = new DataView(buffer, offset);
    this.#bytes = new Uint8Array(buffer, offset);
    this.#dataStart = offset + alignTo64(this.#view.getUint32(0, true));
    this.#at = 4;
  }

  u8(): number {
    return this.#bytes[this.#at++]!;
  }

  u32(): number {
    const value = this.#view.getUint32(this.#at, true);
    this.#at += 4;
    return value;
  }

  f64(): number {
    const value = this.#view.getFloat64(this.#at, true);
    this.#at += 8;
    return value;
  }

  u64(): bigint {
    const value = this.#view.getBigUint64(this.#at, true);
    this.#at += 8;
    return value;
  }

  text(): string {
    const length = this.u32();
    if (length === 0) return "";
    const start = this.#at;
    this.#at += length;
    if (length <= SHORT_TEXT_BYTES) {
      const short = this.#asciiText(start, length);
      if (short !== undefined) return short;
    }
    return DECODER.decode(this.#bytes.subarray(start, start + length));
  }

  #asciiText(start: number, length: number): string | undefined {
    let text = "";
    for (let index = start; index < start + length; index++) {
      const byte = this.#bytes[index]!;
      if (byte >= 0x80) return undefined;
      text += String.fromCharCode(byte);
    }
    return text;
  }

  texts(): string[] {
    return Array.from({ length: this.u32() }, () => this.text());
  }

  correlationId(): bigint | string {
    return this.u8() === 1 ? this.text() : this.u64();
  }

  parameters(): Record<string, ParameterValue> {
    const values: Record<string, ParameterValue> = {};
    for (let left = this.u32(); left > 0; left--) {
      const key = this.text();
      // A plain assignment to this key would set the prototype.
      if (key === "__proto__") define(values, key, this.#parameter());
      else values[key] = this.#parameter();
    }
    return values;
  }

  #parameter(): ParameterValue {
    switch (this.u8()) {
      case PARAMETER_KIND.bool:
        return this.u8() === 1;
      case PARAMETER_KIND.int64:
        return BigInt.asIntN(64, this.u64());
      case PARAMETER_KIND.uint64:
        return this.u64();
      case PARAMETER_KIND.double:
        return this.f64();
      default:
        return this.text();
    }
  }

  /** A tensor whose `data` is a view into the frame. @throws RangeError for what is none */
  tensor(name: string): Tensor {
    const datatype = DATATYPE_ORDER[this.u8()];
    if (datatype === undefined) throw new RangeError(`Tensor '${name}' has no datatype`);
    const shape: number[] = [];
    let count = 1;
    for (let rank = this.u32(); rank > 0; rank--) {
      const dim = this.f64();
      if (!(dim >= 0)) throw new RangeError(`Tensor '${name}' has a dimension ${dim}`);
      count *= dim;
      shape.push(dim);
    }
    const place = this.f64();
    const data = place < 0
      ? new Uint8Array(this.#enclosed[-place - 1]!, this.f64(), this.f64())
      : new Uint8Array(this.#buffer, this.#dataStart + place, this.f64());
    if (datatype !== "BYTES" && data.length !== count * elementBytes(datatype)) {
      throw new RangeError(`Tensor '${name}' has ${data.length} bytes and the shape [${shape}]`);
    }
    return { name, datatype, shape, data };
  }
}

function define(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, {
    value,
    enumerable: true,
    configurable: true,
    writable: true,
  });
}
