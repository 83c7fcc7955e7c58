const BLOCK_BYTE_SIZE = 16 * 1024;

/** A length-delimited field: its number, and where its content lies in the file. */
export interface FileField {
  readonly number: number;
  readonly start: number;
  readonly end: number;
}

/** Walks over the fields of protobuf messages in a file without reading the large ones. */
export class ProtobufFileReader {
  readonly #file: Deno.FsFile;
  readonly #block = new Uint8Array(BLOCK_BYTE_SIZE);
  /** The part of the file that `#block` holds. */
  #blockStart = 0;
  #blockEnd = 0;

  constructor(file: Deno.FsFile) {
    this.#file = file;
  }

  /**
   * The length-delimited fields of the message at `[start, end)`.
   * @throws RangeError for what is no protobuf message.
   */
  async *fields(start: number, end: number): AsyncGenerator<FileField> {
    let offset = start;
    while (offset < end) {
      const key = await this.#varint(offset);
      offset = key.next;
      const wireType = key.value % 8;
      if (wireType === 0) offset = (await this.#varint(offset)).next;
      else if (wireType === 1) offset += 8;
      else if (wireType === 5) offset += 4;
      else if (wireType === 2) {
        const length = await this.#varint(offset);
        const fieldEnd = length.next + length.value;
        if (fieldEnd > end) throw new RangeError("Field ends behind its message");
        yield { number: Math.floor(key.value / 8), start: length.next, end: fieldEnd };
        offset = fieldEnd;
      } else throw new RangeError(`Unknown wire type ${wireType}`);
    }
  }

  /** The bytes of a short field as text. */
  async text(start: number, end: number): Promise<string> {
    const bytes = new Uint8Array(end - start);
    for (let index = 0; index < bytes.length; index++) {
      bytes[index] = await this.#byte(start + index);
    }
    return new TextDecoder().decode(bytes);
  }

  async #varint(start: number): Promise<{ value: number; next: number }> {
    let value = 0;
    for (let index = 0; index < 10; index++) {
      const offset = start + index;
      const byte = this.#cached(offset) ?? await this.#byte(offset);
      // Only keys and lengths matter, and they stay far below 2^53.
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte < 0x80) return { value, next: offset + 1 };
    }
    throw new RangeError("Number is longer than 10 bytes");
  }

  #cached(offset: number): number | undefined {
    if (offset < this.#blockStart || offset >= this.#blockEnd) return undefined;
    return this.#block[offset - this.#blockStart];
  }

  async #byte(offset: number): Promise<number> {
    const cached = this.#cached(offset);
    if (cached !== undefined) return cached;
    await this.#file.seek(offset, Deno.SeekMode.Start);
    const count = await this.#file.read(this.#block);
    if (count === null) throw new RangeError("File ends inside a message");
    this.#blockStart = offset;
    this.#blockEnd = offset + count;
    return this.#block[0]!;
  }
}
