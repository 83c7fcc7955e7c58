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
    } else countBlock(elements, field, { block: reader.bytes(), first: before === undefined });
  }
}

function countBlock(
  elements: FieldElements,
  field: ContentsField,
  { block, first }: { block: Uint8Array; first: boolean },
): void {
  if (field.wire === "bytes") {
    elements.count++;
    elements.payloadBytes += block.length;
    return;
  }
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
      if (block?.length === count && block.every((byte) => byte < 2)) return block;
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
    while (reader.position < end) {
      words[at++] = reader.varint64();
      words[at++] = reader.high;
    }
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

function prefixElements(source: FieldSource, byteSize: number): Uint8Array {
  const result = new Uint8Array(byteSize);
  const view = new DataView(result.buffer);
  let at = 0;
  visitField(source, (reader, end) => {
    const length = end - reader.position;
    view.setUint32(at, length, true);
    result.set(reader.buffer.subarray(reader.position, end), at + 4);
    at += 4 + length;
    reader.position = end;
  });
  return result;
}
