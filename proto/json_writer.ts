const SLAB_BYTES = 64 * 1024;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const HEX = "0123456789abcdef";
const SHORT_ESCAPES: Readonly<Record<number, string>> = {
  8: "\\b",
  9: "\\t",
  10: "\\n",
  12: "\\f",
  13: "\\r",
  34: '\\"',
  92: "\\\\",
};

/**
 * Writes compact JSON as UTF-8 bytes. Small documents share one block of memory, each at a place of its own, so
 * that a response costs no allocation of a buffer. Not reentrant: one document at a time, from `begin` to `finish`.
 */
export class JsonWriter {
  #bytes = new Uint8Array(SLAB_BYTES);
  #start = 0;
  #length = 0;
  readonly #encoder = new TextEncoder();

  /** Begins a document; what an abandoned one left is dropped. */
  begin(): void {
    this.#length = this.#start;
  }

  /** The document; its bytes stay as they are. */
  finish(): Uint8Array {
    const document = this.#bytes.subarray(this.#start, this.#length);
    this.#start = this.#length;
    if (this.#start > SLAB_BYTES - 1024) {
      this.#bytes = new Uint8Array(SLAB_BYTES);
      this.#start = 0;
    }
    this.#length = this.#start;
    return document;
  }

  /** Makes room for `byteSize` more bytes. */
  #reserve(byteSize: number): void {
    const needed = this.#length + byteSize;
    if (needed <= this.#bytes.length) return;
    const written = this.#bytes.subarray(this.#start, this.#length);
    const grown = new Uint8Array(Math.max(SLAB_BYTES, (written.length + byteSize) * 2));
    grown.set(written);
    this.#bytes = grown;
    this.#start = 0;
    this.#length = written.length;
  }

  /** Writes ASCII text as it is. */
  ascii(text: string): void {
    this.#reserve(text.length);
    const bytes = this.#bytes;
    let at = this.#length;
    for (let index = 0; index < text.length; index++) bytes[at++] = text.charCodeAt(index);
    this.#length = at;
  }

  /** Writes one ASCII character. */
  byte(value: number): void {
    if (this.#length === this.#bytes.length) this.#reserve(1);
    this.#bytes[this.#length++] = value;
  }

  /** Writes a string with its quotation marks. */
  string(text: string): void {
    this.#reserve(text.length + 2);
    const bytes = this.#bytes;
    let at = this.#length;
    bytes[at++] = QUOTE;
    for (let index = 0; index < text.length; index++) {
      const code = text.charCodeAt(index);
      if (code < 0x20 || code >= 0x80 || code === QUOTE || code === BACKSLASH) {
        return this.utf8String(this.#encoder.encode(text));
      }
      bytes[at++] = code;
    }
    bytes[at++] = QUOTE;
    this.#length = at;
  }

  /** Writes a string, given as well-formed UTF-8, with its quotation marks. */
  utf8String(content: Uint8Array): void {
    this.#reserve(content.length * 6 + 2);
    const bytes = this.#bytes;
    let at = this.#length;
    bytes[at++] = QUOTE;
    for (const byte of content) {
      if (byte >= 0x20 && byte !== QUOTE && byte !== BACKSLASH) {
        bytes[at++] = byte;
        continue;
      }
      const escape = SHORT_ESCAPES[byte] ?? `\\u00${HEX[byte >> 4]}${HEX[byte & 15]}`;
      for (let index = 0; index < escape.length; index++) bytes[at++] = escape.charCodeAt(index);
    }
    bytes[at++] = QUOTE;
    this.#length = at;
  }

  /** Writes a whole number that a double holds exactly. */
  integer(value: number): void {
    if (value < 0 || value > 0x3fff_ffff) return this.ascii(String(value));
    this.#reserve(10);
    let at = this.#length;
    let divisor = 1;
    while (divisor * 10 <= value) divisor *= 10;
    let rest = value;
    for (; divisor >= 1; divisor = (divisor / 10) | 0) {
      const digit = (rest / divisor) | 0;
      this.#bytes[at++] = 0x30 + digit;
      rest -= digit * divisor;
    }
    this.#length = at;
  }

  /** Writes a double: shortest text that gives it back, with `.0` when it is whole; NaN and Infinity as bare words. */
  double(value: number): void {
    if (Number.isInteger(value) && Math.abs(value) < 1e21) {
      if (Object.is(value, -0)) return this.ascii("-0.0");
      this.integer(value);
      this.ascii(".0");
      return;
    }
    this.ascii(String(value));
  }
}
