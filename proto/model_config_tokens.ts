import type { ConfigPosition } from "./model_config_issue.ts";

/** Kinds of tokens; `mark` is one of `{}<>[]:,;-`, `broken` a string without closing quote. */
export type TokenKind =
  | "name"
  | "number"
  | "string"
  | "broken"
  | "template"
  | "mark"
  | "other"
  | "end";

/** A piece of the text format with its place. */
export interface Token {
  readonly kind: TokenKind;
  /** The source text. */
  readonly text: string;
  /** Where it begins in the text. */
  readonly offset: number;
  readonly position: ConfigPosition;
  /** True if white space, a comment or nothing stands directly before it. */
  readonly spaced: boolean;
}

// No pattern repeats a choice without bound: a long file would use up the stack of the pattern matcher.
const SPACE = /[ \t\r\n\v\f]+|#[^\n]*/y;
const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;
const NUMBER = /\.?[0-9](?:[eE][+-][0-9]|[0-9A-Za-z_.]){0,4000}/y;
const BROKEN = /["'][^\n]*/y;
const TEMPLATE = /\$\{[^}\n]{0,200}\}?|\{\{[^{}\n]{0,200}\}\}|\$[A-Za-z_][A-Za-z0-9_]*/y;
const MARKS = "{}<>[]:,;-";

const PATTERNS: readonly (readonly [TokenKind, RegExp])[] = [
  ["template", TEMPLATE],
  ["name", NAME],
  ["number", NUMBER],
  ["broken", BROKEN],
];

/**
 * Cuts protobuf text format into tokens with places. Never fails: what is no token becomes `other`, so that the
 * parser can report it and go on. The last token is always of kind `end`.
 */
export function tokenizeText(text: string): Token[] {
  const tokens: Token[] = [];
  let offset = 0;
  let line = 1;
  let lineStart = 0;
  const take = (pattern: RegExp): string => {
    pattern.lastIndex = offset;
    return pattern.exec(text)?.[0] ?? "";
  };
  const skip = (piece: string): void => {
    for (let at = piece.indexOf("\n"); at >= 0; at = piece.indexOf("\n", at + 1)) {
      line++;
      lineStart = offset + at + 1;
    }
    offset += piece.length;
  };
  for (;;) {
    let spaced = offset === 0;
    for (let space = take(SPACE); space !== ""; space = take(SPACE)) {
      skip(space);
      spaced = true;
    }
    const position = { line, column: offset - lineStart + 1 };
    if (offset >= text.length) {
      tokens.push({ kind: "end", text: "", offset, position, spaced });
      return tokens;
    }
    const { kind, text: piece } = nextToken(text, offset, take);
    tokens.push({ kind, text: piece, offset, position, spaced });
    skip(piece);
  }
}

function nextToken(
  text: string,
  offset: number,
  take: (pattern: RegExp) => string,
): { kind: TokenKind; text: string } {
  const end = stringEnd(text, offset);
  if (end !== undefined) return { kind: "string", text: text.slice(offset, end) };
  for (const [kind, pattern] of PATTERNS) {
    const piece = take(pattern);
    if (piece !== "") return { kind, text: piece };
  }
  const character = String.fromCodePoint(text.codePointAt(offset) ?? 0);
  return { kind: MARKS.includes(character) ? "mark" : "other", text: character };
}

/** Where the string that begins at `start` ends; undefined when none does, or its line ends first. */
function stringEnd(text: string, start: number): number | undefined {
  const quote = text[start];
  if (quote !== '"' && quote !== "'") return undefined;
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === quote) return at + 1;
    if (text[at] === "\\") at++;
    if (text[at] === "\n") return undefined;
  }
  return undefined;
}

/** The token as an error text shows it. */
export function describeToken(token: Token): string {
  if (token.kind === "end") return "the end of the file";
  if (token.kind === "other") {
    const code = token.text.codePointAt(0) ?? 0;
    if (code < 0x21 || code > 0x7e) {
      return `the character U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    }
  }
  const shown = token.text.length > 80 ? `${token.text.slice(0, 80)}…` : token.text;
  return token.kind === "mark" ? `"${shown}"` : shown;
}
