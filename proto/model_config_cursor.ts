import type { DescMessage } from "@bufbuild/protobuf";
import { type Token, tokenizeText } from "./model_config_tokens.ts";

/** The mark that closes each opening mark. */
export const CLOSING: Readonly<Record<string, string>> = { "{": "}", "<": ">", "[": "]" };

const CLOSERS: readonly string[] = Object.values(CLOSING);

/** True for this very mark. */
export function isMark(token: Token, mark: string): boolean {
  return token.kind === "mark" && token.text === mark;
}

/** True for a mark that opens a bracket. */
export function isOpener(token: Token): boolean {
  return token.kind === "mark" && Object.hasOwn(CLOSING, token.text);
}

/** True for a mark that closes a bracket. */
export function isCloser(token: Token): boolean {
  return token.kind === "mark" && CLOSERS.includes(token.text);
}

/** Goes over the tokens of a text; knows how to leave out what could not be understood. */
export class TokenCursor {
  readonly #tokens: readonly Token[];
  #index = 0;

  constructor(text: string) {
    this.#tokens = tokenizeText(text);
  }

  /** The next token; at the end always the same one. */
  peek(ahead = 0): Token {
    const token = this.#tokens[this.#index + ahead] ?? this.#tokens.at(-1);
    if (token === undefined) throw new RangeError("A token list always has an end");
    return token;
  }

  /** Where the last token that was gone over ends. */
  get consumedEnd(): number {
    const last = this.#tokens[this.#index - 1];
    return last === undefined ? 0 : last.offset + last.text.length;
  }

  /** The mark that closes the bracket around what comes next, or the bracket that opens next. */
  closerAhead(): Token | undefined {
    let depth = isOpener(this.peek()) ? 0 : 1;
    for (let ahead = 0;; ahead++) {
      const token = this.peek(ahead);
      if (token.kind === "end") return undefined;
      if (isOpener(token)) depth++;
      else if (isCloser(token)) depth--;
      if (depth === 0) return token;
    }
  }

  next(): Token {
    const token = this.peek();
    if (token.kind !== "end") this.#index++;
    return token;
  }

  /** Goes over the mark if it is next. */
  take(mark: string): boolean {
    const found = isMark(this.peek(), mark);
    if (found) this.#index++;
    return found;
  }

  /** True when the next tokens are `name :`, `name {` and so on, with a name of the message if one is given. */
  startsField(message?: DescMessage): boolean {
    const token = this.peek();
    const after = this.peek(1);
    if (token.kind !== "name" || !(isMark(after, ":") || isOpener(after))) return false;
    return message === undefined || message.fields.some((field) => field.name === token.text);
  }

  /** Goes over one value: a scalar, or a bracket with all it holds. Stays before a closing mark and at the end. */
  skipValue(): void {
    const token = this.peek();
    if (token.kind === "end" || isCloser(token)) return;
    this.next();
    if (isOpener(token)) this.#skipBracket();
    else if (token.kind === "string") this.#skipWhile((next) => next.kind === "string");
    else if (token.kind !== "mark") {
      this.#skipWhile((next) => !next.spaced && next.kind !== "mark" && next.kind !== "string");
    }
  }

  /** Goes to the next line. */
  skipLine(): void {
    const { line } = this.peek().position;
    while (this.peek().kind !== "end" && this.peek().position.line === line) this.next();
  }

  /** Behind a token that cannot stand where it is: goes to the next field, or before a closing mark. */
  skipToField(message: DescMessage): void {
    const { line } = this.peek().position;
    this.skipValue();
    for (;;) {
      const token = this.peek();
      if (token.kind === "end" || isCloser(token) || this.startsField(message)) return;
      if (token.position.line > line && this.startsField()) return;
      this.skipValue();
    }
  }

  /** Goes behind the mark that closes the bracket whose opening mark was just read. */
  skipBehindCloser(): void {
    this.#skipBracket();
  }

  #skipBracket(): void {
    let depth = 1;
    while (depth > 0) {
      const token = this.next();
      if (token.kind === "end") return;
      if (isOpener(token)) depth++;
      else if (isCloser(token)) depth--;
    }
  }

  #skipWhile(belongs: (token: Token) => boolean): void {
    while (this.peek().kind !== "end" && belongs(this.peek())) this.next();
  }
}
