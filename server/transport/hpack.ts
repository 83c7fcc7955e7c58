import { STATIC_TABLE } from "./hpack_tables.ts";
import { decodeHuffman } from "./huffman.ts";
import { isFieldName, isFieldValue } from "./field_syntax.ts";

/** Name and value. */
export type HeaderField = readonly [string, string];

/** The compressed block cannot be decoded: the connection is lost (COMPRESSION_ERROR). */
export class HpackError extends Error {
  override readonly name = "HpackError";
}

const ENTRY_OVERHEAD_BYTES = 32;
const DEFAULT_TABLE_BYTES = 4_096;
const MAX_INTEGER_SHIFT = 28;

/** What `decode` found in one header block. */
export interface DecodedHeaders {
  readonly fields: HeaderField[];
  /** A name is not a lower-case token or a value has characters that are not allowed. */
  readonly malformed: boolean;
  /** The list is longer than the limit; `fields` ends there. */
  readonly tooLarge: boolean;
}

/** Bounds of one header list. */
export interface HeaderListLimits {
  readonly maxListBytes: number;
  readonly maxFieldCount: number;
}

/** HPACK decoder (RFC 7541) of one connection. Entries of its table are shared, not copied, by the decoded lists. */
export class HpackDecoder {
  readonly #limits: HeaderListLimits;
  /** Oldest entry first. */
  readonly #table: HeaderField[] = [];
  #tableBytes = 0;
  #maxTableBytes = DEFAULT_TABLE_BYTES;
  /** Entries whose name or value is not allowed; they stay decodable. */
  #malformedEntries: WeakSet<HeaderField> | undefined;
  #block: Uint8Array = new Uint8Array(0);
  #at = 0;

  constructor(limits: HeaderListLimits) {
    this.#limits = limits;
  }

  /** Decodes a whole block. Throws HpackError. */
  decode(block: Uint8Array): DecodedHeaders {
    this.#block = block;
    this.#at = 0;
    const { maxListBytes, maxFieldCount } = this.#limits;
    const fields: HeaderField[] = [];
    let malformed = false;
    let listBytes = 0;
    let sizeUpdateAllowed = true;
    while (this.#at < block.length) {
      const first = block[this.#at]!;
      if ((first & 0xe0) === 0x20) {
        if (!sizeUpdateAllowed) throw new HpackError("Table size update after a field");
        this.#updateTableSize();
        continue;
      }
      sizeUpdateAllowed = false;
      const field = (first & 0x80) !== 0 ? this.#entry(this.#integer(7)) : this.#literal(first);
      if (this.#malformedEntries?.has(field)) malformed = true;
      listBytes += entryBytes(field);
      if (listBytes <= maxListBytes && fields.length < maxFieldCount) fields.push(field);
      else listBytes = Infinity;
    }
    this.#block = block.subarray(0, 0);
    return { fields, malformed, tooLarge: listBytes === Infinity };
  }

  #literal(first: number): HeaderField {
    const indexed = (first & 0xc0) === 0x40;
    const nameIndex = this.#integer(indexed ? 6 : 4);
    const named = nameIndex > 0 ? this.#entry(nameIndex) : undefined;
    const name = named === undefined ? this.#string() : named[0];
    const field: HeaderField = [name, this.#string()];
    const nameIsBad = named === undefined
      ? !isFieldName(name)
      : this.#malformedEntries?.has(named) === true && !isFieldName(name);
    if (nameIsBad || !isFieldValue(field[1])) {
      this.#malformedEntries ??= new WeakSet();
      this.#malformedEntries.add(field);
    }
    if (indexed) {
      this.#table.push(field);
      this.#tableBytes += entryBytes(field);
      this.#evict();
    }
    return field;
  }

  #entry(index: number): HeaderField {
    const field = index <= STATIC_TABLE.length
      ? STATIC_TABLE[index - 1]
      : this.#table[this.#table.length + STATIC_TABLE.length - index];
    if (field === undefined) throw new HpackError(`No table entry ${index}`);
    return field;
  }

  #updateTableSize(): void {
    const maxBytes = this.#integer(5);
    if (maxBytes > DEFAULT_TABLE_BYTES) throw new HpackError(`Table size ${maxBytes} is too large`);
    this.#maxTableBytes = maxBytes;
    this.#evict();
  }

  #evict(): void {
    while (this.#tableBytes > this.#maxTableBytes) {
      this.#tableBytes -= entryBytes(this.#table.shift()!);
    }
  }

  #integer(prefixBits: number): number {
    const mask = (1 << prefixBits) - 1;
    let value = this.#block[this.#at++]! & mask;
    if (value < mask) return value;
    for (let shift = 0;; shift += 7) {
      const byte = this.#block[this.#at++];
      if (byte === undefined || shift > MAX_INTEGER_SHIFT) throw new HpackError("Bad integer");
      value += (byte & 0x7f) * 2 ** shift;
      if ((byte & 0x80) === 0) return value;
    }
  }

  #string(): string {
    if (this.#at >= this.#block.length) throw new HpackError("Block ends inside a field");
    const isHuffman = (this.#block[this.#at]! & 0x80) !== 0;
    const byteSize = this.#integer(7);
    const start = this.#at;
    const end = start + byteSize;
    if (end > this.#block.length) throw new HpackError("Block ends inside a string");
    this.#at = end;
    if (isHuffman) {
      const text = decodeHuffman(this.#block, start, end);
      if (text === undefined) throw new HpackError("Bad Huffman coding");
      return text;
    }
    let text = "";
    for (let at = start; at < end; at++) text += String.fromCharCode(this.#block[at]!);
    return text;
  }
}

function entryBytes(field: HeaderField): number {
  return ENTRY_OVERHEAD_BYTES + field[0].length + field[1].length;
}

/** Static indexes of `:status` values. */
const STATUS_INDEX: ReadonlyMap<string, number> = new Map([
  ["200", 8],
  ["204", 9],
  ["206", 10],
  ["304", 11],
  ["400", 12],
  ["404", 13],
  ["500", 14],
]);

/**
 * Encodes fields as literals that are never indexed and not Huffman coded: the block depends on nothing but its
 * fields, so that it can be made once. Characters above 255 become `?`.
 */
export function encodeHeaderBlock(fields: readonly HeaderField[]): Uint8Array<ArrayBuffer> {
  const bytes: number[] = [];
  for (const [name, value] of fields) {
    const statusIndex = name === ":status" ? STATUS_INDEX.get(value) : undefined;
    if (statusIndex !== undefined) {
      bytes.push(0x80 | statusIndex);
      continue;
    }
    bytes.push(0);
    pushString(bytes, name);
    pushString(bytes, value);
  }
  return Uint8Array.from(bytes);
}

function pushString(bytes: number[], text: string): void {
  let rest = text.length;
  if (rest < 127) {
    bytes.push(rest);
  } else {
    bytes.push(127);
    for (rest -= 127; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest & 127) | 128);
    bytes.push(rest);
  }
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    bytes.push(unit > 255 ? 63 : unit);
  }
}
