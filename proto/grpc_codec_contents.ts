import { unparsable, WireKind, WireReader } from "./grpc_codec_wire.ts";
import type { Datatype } from "./datatype.ts";
import { ServerError } from "./status.ts";

/** How one field of `InferTensorContents` becomes tensor bytes. */
interface ContentsField {
  /** Datatypes that may use the field; the last one names the field in errors. */
  readonly datatypes: readonly Datatype[];
  readonly wire: "varint" | "fixed32" | "fixed64" | "bytes";
}

// Index = field number - 1, in the order in which the reference looks at them.
const FIELDS: readonly ContentsField[] = [
  { datatypes: ["BOOL"], wire: "varint" },
  { datatypes: ["INT8", "INT16", "INT32"], wire: "varint" },
  { datatypes: ["INT64"], wire: "varint" },
  { datatypes: ["UINT8", "UINT16", "UINT32"], wire: "varint" },
  { datatypes: ["UINT64"], wire: "varint" },
  { datatypes: ["FP32"], wire: "fixed32" },
  { datatypes: ["FP64"], wire: "fixed64" },
  { datatypes: ["BYTES"], wire: "bytes" },
];

/** What a first pass over the contents found of one field. */
interface FieldElements {
  count: number;
  /** Sum of the payload bytes, BYTES only. */
  payloadBytes: number;
  /** The only packed block, when there is nothing else: it can often be used as it is. */
  block: Uint8Array | undefined;
}

/** Names a tensor in error texts. */
export interface ContentsOwner {
  readonly input: string;
  readonly model: string;
}

/**
 * Most bytes of typed contents that are converted, as many as an input may have as JSON by default: it keeps everyone
 * else waiting.
 */
const MAX_CONVERTED_BYTES = 67_108_864;
/** Up to this length a loop is faster than making the views for `set`. */
const LOOP_COPY_BYTES = 64;
const NO_BYTES: Uint8Array = new Uint8Array(0);

/**
 * Turns typed contents into tensor bytes (grpc.md §3.2). FP32, FP64 and clean BOOL data are views into the message;
 * the rest is converted from the wire without an array of JavaScript values in between.
 * @param occurrences The encoded `InferTensorContents` of one input; several are merged as protobuf does.
 */
export function decodeContents(
  occurrences: readonly Uint8Array[],
  datatype: Datatype | undefined,
  owner: ContentsOwner,
): Uint8Array {
  checkByteSize(occurrences, datatype, owner);
  const found: (FieldElements | undefined)[] = new Array(FIELDS.length).fill(undefined);
  for (const occurrence of occurrences) scanContents(new WireReader(occurrence), found);
  let result: Uint8Array | undefined;
  for (let index = 0; index < FIELDS.length; index++) {
    const elements = found[index];
    if (elements === undefined || elements.count === 0) continue;
    const field = FIELDS[index]!;
    if (result !== undefined) {
      throw new ServerError(
        "INVALID_ARG",
        `unexpected explicit tensor data for input tensor '${owner.input}' for model '${owner.model}', ` +
          "binary data was already supplied.",
      );
    }
    if (datatype === undefined || !field.datatypes.includes(datatype)) {
      throw new ServerError(
        "INVALID_ARG",
        `unexpected explicit tensor data for input tensor '${owner.input}' for model '${owner.model}' ` +
          `of type '${field.datatypes.at(-1)}', expected datatype '${datatype ?? "<invalid>"}'`,
      );
    }
    result = convert({ occurrences, number: index + 1, elements }, datatype);
  }
  return result ?? NO_BYTES;
}

/** Floating point data are taken as they are, however many. */
function checkByteSize(
  occurrences: readonly Uint8Array[],
  datatype: Datatype | undefined,
  { input, model }: ContentsOwner,
): void {
  if (datatype === "FP32" || datatype === "FP64") return;
  let byteSize = 0;
  for (const { length } of occurrences) byteSize += length;
  if (byteSize <= MAX_CONVERTED_BYTES) return;
  throw new ServerError(
    "INVALID_ARG",
    `explicit tensor data for input tensor '${input}' for model '${model}' take ${byteSize} bytes, ` +
      `expected at most ${MAX_CONVERTED_BYTES}: larger tensors have to be sent as raw_input_contents`,
  );
}

function scanContents(reader: WireReader, found: (FieldElements | undefined)[]): void {
  while (!reader.done) {
    const tag = reader.tag();
    const index = Math.floor(tag / 8) - 1;
    const field = FIELDS[index];
    const kind = tag & 7;
    if (field === undefined || (kind !== WireKind.bytes && kind !== WireKind[field.wire])) {
      reader.skip(tag);
      continue;
    }
    const before = found[index];
    const elements = found[index] = before ?? { count: 0, payloadBytes: 0, block: undefined };
    if (kind !== WireKind.bytes) {
      reader.skip(tag);
      elements.count++;
      elements.block = undefined;
    } else if (field.wire === "bytes") {
      const length = reader.length();
      reader.position += length;
      elements.count++;
      elements.payloadBytes += length;
    } else countBlock(elements, field, { block: reader.bytes(), first: before === undefined });
  }
}

function countBlock(
  elements: FieldElements,
  field: ContentsField,
  { block, first }: { block: Uint8Array; first: boolean },
): void {
  elements.block = first ? block : undefined;
  if (field.wire === "varint") {
    elements.count += countVarints(block);
    return;
  }
  const size = field.wire === "fixed32" ? 4 : 8;
  if (block.length % size !== 0) throw unparsable();
  elements.count += block.length / size;
}

function countVarints(block: Uint8Array): number {
  let count = 0;
  let run = 0;
  for (let index = 0; index < block.length; index++) {
    if (block[index]! < 0x80) {
      count++;
      run = 0;
    } else if (++run === 10) throw unparsable();
  }
  if (run !== 0) throw unparsable();
  return count;
}

/** The elements of one field, to be read a second time. */
interface FieldSource {
  readonly occurrences: readonly Uint8Array[];
  readonly number: number;
  readonly elements: FieldElements;
}

function convert(source: FieldSource, datatype: Datatype): Uint8Array {
  const { count, block, payloadBytes } = source.elements;
  switch (datatype) {
    case "FP32":
      return block ?? fixedBytes(source, 4);
    case "FP64":
      return block ?? fixedBytes(source, 8);
    case "BYTES":
      return prefixElements(source, payloadBytes + 4 * count);
    case "BOOL":
      if (block?.length === count && isClean(block)) return block;
      return booleans(source, new Uint8Array(count));
    case "INT64":
    case "UINT64":
      return wideIntegers(source, new Uint32Array(count * 2));
    case "INT8":
    case "UINT8":
      return integers(source, new Uint8Array(count));
    case "INT16":
    case "UINT16":
      return integers(source, new Uint16Array(count));
    default:
      return integers(source, new Uint32Array(count));
  }
}

// A varint ends where it ends: one byte is enough to say that there is one.
const SINGLE_BYTES = { varint: 1, fixed32: 4, fixed64: 8, bytes: 0 };

/** Calls `visit` with a reader and an end for each block or single element of the field. */
function visitField(
  source: FieldSource,
  visit: (reader: WireReader, end: number) => void,
): void {
  const { wire } = FIELDS[source.number - 1]!;
  for (const occurrence of source.occurrences) {
    const reader = new WireReader(occurrence);
    while (!reader.done) {
      const tag = reader.tag();
      const kind = tag & 7;
      if (tag - kind !== source.number * 8) reader.skip(tag);
      else if (kind === WireKind.bytes) {
        const length = reader.length();
        visit(reader, reader.position + length);
      } else if (kind === WireKind[wire]) visit(reader, reader.position + SINGLE_BYTES[wire]);
      else reader.skip(tag);
    }
  }
}

/** Whether bytes are what a BOOL tensor has. */
function isClean(block: Uint8Array): boolean {
  for (let index = 0; index < block.length; index++) {
    if (block[index]! > 1) return false;
  }
  return true;
}

/** Stores the low bits of each varint; the typed array cuts them to its width. */
function integers(
  source: FieldSource,
  target: Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>,
): Uint8Array {
  let at = 0;
  visitField(source, (reader, end) => {
    at = reader.varints32(end, target, at);
  });
  return new Uint8Array(target.buffer);
}

function booleans(source: FieldSource, target: Uint8Array<ArrayBuffer>): Uint8Array {
  let at = 0;
  visitField(source, (reader, end) => {
    while (reader.position < end) target[at++] = reader.bool() ? 1 : 0;
  });
  return target;
}

function wideIntegers(source: FieldSource, words: Uint32Array<ArrayBuffer>): Uint8Array {
  let at = 0;
  visitField(source, (reader, end) => {
    at = reader.varints64(end, words, at);
  });
  return new Uint8Array(words.buffer);
}

function fixedBytes(source: FieldSource, size: number): Uint8Array {
  const result = new Uint8Array(source.elements.count * size);
  let at = 0;
  visitField(source, (reader, end) => {
    result.set(reader.buffer.subarray(reader.position, end), at);
    at += end - reader.position;
    reader.position = end;
  });
  return result;
}

function prefixElements({ occurrences, number }: FieldSource, byteSize: number): Uint8Array {
  const result = new Uint8Array(byteSize);
  const fieldTag = number * 8 + WireKind.bytes;
  let at = 0;
  for (const occurrence of occurrences) {
    const reader = new WireReader(occurrence);
    while (!reader.done) {
      const tag = reader.tag();
      if (tag !== fieldTag) {
        reader.skip(tag);
        continue;
      }
      const length = reader.length();
      const start = reader.position;
      reader.position = start + length;
      result[at++] = length;
      result[at++] = length >>> 8;
      result[at++] = length >>> 16;
      result[at++] = length >>> 24;
      if (length > LOOP_COPY_BYTES) {
        result.set(occurrence.subarray(start, start + length), at);
        at += length;
      } else {
        for (let from = start; from < start + length; from++) result[at++] = occurrence[from]!;
      }
    }
  }
  return result;
}
