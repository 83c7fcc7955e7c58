import type { ParameterValue } from "../../proto/infer.ts";
import type { Datatype } from "../../proto/datatype.ts";
import { alignTo64 } from "./block_ring.ts";
import { DATATYPE_ORDER } from "./tensor_arrays.ts";

const START_BYTES = 512;
const ENCODER = new TextEncoder();
const NUMBER_OF_DATATYPE = new Map(DATATYPE_ORDER.map((datatype, index) => [datatype, index]));

/** Kinds of values among parameters. */
export const PARAMETER_KIND = { bool: 0, int64: 1, uint64: 2, double: 3, string: 4 } as const;

/**
 * Builds one frame: fields in a row, and behind them the bytes of tensors, each aligned to 64. Used again and again:
 * `begin` empties it.
 */
export class FrameWriter {
  #bytes = new Uint8Array(START_BYTES);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;
  #dataBytes = 0;
  readonly #parts: { readonly at: number; readonly bytes: Uint8Array }[] = [];
  readonly #lent = new WeakSet<ArrayBufferLike>();
  #enclosed: SharedArrayBuffer[] = [];

  begin(): this {
    // The length of the fields comes first.
    this.#length = 4;
    this.#dataBytes = 0;
    this.#parts.length = 0;
    this.#enclosed = [];
    return this;
  }

  u8(value: number): this {
    this.#reserve(1);
    this.#bytes[this.#length++] = value;
    return this;
  }

  u32(value: number): this {
    this.#reserve(4);
    this.#view.setUint32(this.#length, value, true);
    this.#length += 4;
    return this;
  }

  f64(value: number): this {
    this.#reserve(8);
    this.#view.setFloat64(this.#length, value, true);
    this.#length += 8;
    return this;
  }

  u64(value: bigint): this {
    this.#reserve(8);
    this.#view.setBigUint64(this.#length, value, true);
    this.#length += 8;
    return this;
  }

  text(value: string): this {
    if (value === "") return this.u32(0);
    this.#reserve(4 + value.length * 3);
    const { written } = ENCODER.encodeInto(value, this.#bytes.subarray(this.#length + 4));
    this.#view.setUint32(this.#length, written, true);
    this.#length += 4 + written;
    return this;
  }

  texts(values: readonly string[]): this {
    this.u32(values.length);
    for (const value of values) this.text(value);
    return this;
  }

  correlationId(value: bigint | string): this {
    return typeof value === "string" ? this.u8(1).text(value) : this.u8(0).u64(value);
  }

  parameters(values: Readonly<Record<string, ParameterValue>>): this {
    const keys = Object.keys(values);
    this.u32(keys.length);
    for (const key of keys) this.text(key).#parameter(values[key]!);
    return this;
  }

  #parameter(value: ParameterValue): void {
    switch (typeof value) {
      case "boolean":
        this.u8(PARAMETER_KIND.bool).u8(Number(value));
        return;
      case "bigint":
        this.u8(value < 0n ? PARAMETER_KIND.int64 : PARAMETER_KIND.uint64);
        this.u64(BigInt.asUintN(64, value));
        return;
      case "number":
        this.u8(PARAMETER_KIND.double).f64(value);
        return;
      default:
        this.u8(PARAMETER_KIND.string).text(value);
    }
  }

  /** A tensor without its name; its bytes are copied by `writeTo`. */
  tensor(datatype: Datatype, shape: readonly number[], bytes: Uint8Array): this {
    this.u8(NUMBER_OF_DATATYPE.get(datatype)!).u32(shape.length);
    for (const dim of shape) this.f64(dim);
    if (this.#lent.has(bytes.buffer)) return this.#enclose(bytes);
    this.f64(this.#dataBytes).f64(bytes.length);
    if (bytes.length > 0) this.#parts.push({ at: this.#dataBytes, bytes });
    this.#dataBytes += alignTo64(bytes.length);
    return this;
  }

  /** Tensors over this memory are sent as a reference to it. */
  lend(memory: SharedArrayBuffer): void {
    this.#lent.add(memory);
  }

  #enclose(bytes: Uint8Array): this {
    this.#enclosed.push(bytes.buffer as unknown as SharedArrayBuffer);
    return this.f64(-this.#enclosed.length).f64(bytes.byteOffset).f64(bytes.length);
  }

  /** Memory of tensors that goes beside the frame, in the order of their references. */
  get enclosed(): readonly SharedArrayBuffer[] {
    return this.#enclosed;
  }

  /** Bytes of the frame. */
  get byteSize(): number {
    return alignTo64(this.#length) + this.#dataBytes;
  }

  /** Writes the frame to `target` from `offset` on, a multiple of 64. */
  writeTo(target: SharedArrayBuffer, offset: number): void {
    this.#view.setUint32(0, this.#length, true);
    const bytes = new Uint8Array(target, offset, this.byteSize);
    bytes.set(
      this.#length === this.#bytes.length ? this.#bytes : this.#bytes.subarray(0, this.#length),
    );
    const dataStart = alignTo64(this.#length);
    for (const part of this.#parts) bytes.set(part.bytes, dataStart + part.at);
    this.#parts.length = 0;
  }

  #reserve(count: number): void {
    const needed = this.#length + count;
    if (needed <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    grown.set(this.#bytes);
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}
