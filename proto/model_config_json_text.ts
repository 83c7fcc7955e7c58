/** Levels of arrays and objects inside each other that are read. */
const DEPTH_MAX = 100;

// Each pattern is a plain repetition: long text takes no stack of the pattern matcher.
const SPACE = /[ \t\r\n]+/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const WORD = /[A-Za-z_$][A-Za-z0-9_$]*/y;
const PLAIN = /[^"'\\]+/y;
const HEX = /[0-9a-fA-F]{4}/y;

const WORDS: ReadonlyMap<string, boolean | null> = new Map([
  ["true", true],
  ["false", false],
  ["null", null],
]);
const ESCAPES: Readonly<Record<string, string>> = {
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/**
 * Reads JSON as the reference reads the configuration of a load request, which is more than RFC 8259 allows: keys
 * without quotes, single quotes, a comma behind the last member or element, any character in strings. The last of
 * members with one name counts. Whole numbers that a double cannot hold come as text, as protobuf's JSON allows.
 * @throws SyntaxError with line and column of what is wrong.
 */
export function parseModelConfigJsonText(text: string): unknown {
  const reader = new JsonTextReader(text);
  const value = reader.value(0);
  reader.finish();
  return value;
}

class JsonTextReader {
  readonly #text: string;
  #offset = 0;

  constructor(text: string) {
    this.#text = text;
    if (text.startsWith("\ufeff")) this.#offset = 1;
  }

  finish(): void {
    const next = this.#peek();
    if (next !== "") throw this.#error(`the end of the text expected behind the value`);
  }

  value(depth: number): unknown {
    const next = this.#peek();
    if (next === "{" || next === "[") {
      if (depth >= DEPTH_MAX) throw this.#error(`at most ${DEPTH_MAX} levels expected`);
      return next === "{" ? this.#object(depth + 1) : this.#array(depth + 1);
    }
    if (next === '"' || next === "'") return this.#string();
    const number = this.#take(NUMBER);
    if (number !== undefined) return this.#number(number);
    const start = this.#offset;
    const word = WORDS.get(this.#take(WORD)?.[0] ?? "");
    if (word !== undefined) return word;
    this.#offset = start;
    throw this.#error("a value expected");
  }

  #object(depth: number): Record<string, unknown> {
    const members: [string, unknown][] = [];
    for (this.#offset++; this.#peek() !== "}"; this.#separator("}")) {
      const key = this.#key();
      if (this.#peek() !== ":") throw this.#error(`":" expected behind the key`);
      this.#offset++;
      members.push([key, this.value(depth)]);
    }
    this.#offset++;
    return Object.fromEntries(members);
  }

  #array(depth: number): unknown[] {
    const elements: unknown[] = [];
    for (this.#offset++; this.#peek() !== "]"; this.#separator("]")) {
      elements.push(this.value(depth));
    }
    this.#offset++;
    return elements;
  }

  #separator(close: string): void {
    const next = this.#peek();
    if (next === ",") this.#offset++;
    else if (next !== close) throw this.#error(`"," or "${close}" expected`);
  }

  #key(): string {
    const next = this.#peek();
    if (next === '"' || next === "'") return this.#string();
    const start = this.#offset;
    const word = this.#take(WORD)?.[0];
    if (word !== undefined && !WORDS.has(word)) return word;
    this.#offset = start;
    throw this.#error(`a key or "}" expected`);
  }

  #string(): string {
    const start = this.#offset;
    const quote = this.#text[start];
    let value = "";
    this.#offset++;
    for (;;) {
      value += this.#take(PLAIN)?.[0] ?? "";
      const next = this.#text[this.#offset];
      if (next === undefined) {
        this.#offset = start;
        throw this.#error("a string without closing quote");
      }
      this.#offset++;
      if (next === quote) return value;
      value += next === "\\" ? this.#escape() : next;
    }
  }

  /** The character behind a backslash; one that needs none stands for itself. */
  #escape(): string {
    const letter = this.#text[this.#offset] ?? "";
    this.#offset++;
    if (letter !== "u") return ESCAPES[letter] ?? letter;
    const digits = this.#take(HEX)?.[0];
    if (digits === undefined) throw this.#error(`four hexadecimal digits expected behind "\\u"`);
    return String.fromCharCode(parseInt(digits, 16));
  }

  #number([text, fraction, exponent]: RegExpExecArray): number | string {
    const next = this.#text[this.#offset] ?? "";
    if (/[0-9A-Za-z_.]/.test(next)) {
      throw this.#error(`${text} is no number with the ${JSON.stringify(next)} behind it`);
    }
    const value = Number(text);
    const isWhole = fraction === undefined && exponent === undefined;
    return isWhole && !Number.isSafeInteger(value) ? text : value;
  }

  /** The next character that is no white space, "" at the end. */
  #peek(): string {
    this.#take(SPACE);
    return this.#text[this.#offset] ?? "";
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#offset;
    const match = pattern.exec(this.#text);
    if (match === null) return undefined;
    this.#offset += match[0].length;
    return match;
  }

  #error(reason: string): SyntaxError {
    const before = this.#text.slice(0, this.#offset).split("\n");
    const column = (before.at(-1)?.length ?? 0) + 1;
    const found = this.#text.slice(this.#offset, this.#offset + 20).split("\n")[0];
    const got = this.#offset >= this.#text.length ? "the end" : JSON.stringify(found);
    return new SyntaxError(`${reason}, got ${got} at line ${before.length}, column ${column}`);
  }
}
