import { type DescEnum, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { isMark, isOpener } from "./model_config_cursor.ts";
import { enumValueFor, fieldNameFor } from "./model_config_hint.ts";
import type { ConfigMend, TextEdit } from "./model_config_issue.ts";
import { type Token, tokenizeText } from "./model_config_tokens.ts";
import { checkEnumToken, checkScalarToken } from "./model_config_value.ts";

/** What a value must be. */
export type ValueKind = { readonly scalar: ScalarType } | { readonly enum: DescEnum };

/** Spaces that editors and web pages put into texts, and that the format does not know. */
const ODD_SPACE =
  /^[\u0085\u00a0\u1680\u180e\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]$/;
const NO_SPACE = /^[\u180e\u200b-\u200d\u2060\ufeff]$/;
const CURVED_STRING =
  /[\u201c-\u201f\u00ab]([^"\u201c-\u201f\u00ab\u00bb\n\\]*)[\u201c-\u201f\u00bb]/y;
/** A word that was meant as a string, without or with one quote. */
const WORD = /[^\s"'{}[\]<>,;#:\u201c-\u201f]+/y;
const HALF_QUOTED = /["']([^\s"'{}[\]<>,;#:\\]+)["']?(?=[ \t\r]*[,;]?[ \t\r]*(?:\n|$))/y;
const WHOLE_NUMBER = /^([0-9]+)(?:\.0*)?$/;
const SCALARS_IN_BRACKETS = /[({<]([^()[\]{}<>:#]*)[)}>]/y;
const SEPARATOR_BEHIND = /[ \t]*[,;][ \t]*/y;
const BLANK_LINE_END = /[ \t]*\r?\n/y;
const BOOL_WORDS: Readonly<Record<string, string>> = {
  true: "true",
  yes: "true",
  on: "true",
  false: "false",
  no: "false",
  off: "false",
};

/** Replaces `end - begin` characters. */
export function replaceText(begin: number, end: number, text: string): ConfigMend {
  return { edits: [{ begin, end, text }] };
}

/** Takes a field or a list element out, with its separator, and with its line if nothing else is in it. */
export function removeSpan(
  text: string,
  span: { readonly begin: number; readonly end: number },
  isElement = false,
): TextEdit {
  let { begin, end } = span;
  const behind = matchAt(SEPARATOR_BEHIND, text, end)?.[0].length ?? 0;
  end += behind;
  if (behind === 0 && isElement) {
    begin -= /(?:,\s*)?$/.exec(text.slice(Math.max(0, begin - 200), begin))![0].length;
  }
  const lineStart = text.lastIndexOf("\n", begin - 1) + 1;
  const blank = matchAt(BLANK_LINE_END, text, end)?.[0].length;
  const isOnly = blank !== undefined && text.slice(lineStart, begin).trim() === "";
  return isOnly ? { begin: lineStart, end: end + blank, text: "" } : { begin, end, text: "" };
}

/** What a token is wherever it stands wrongly: a foreign space, a curved quote, one separator too many. */
export function mendToken(text: string, token: Token): ConfigMend | undefined {
  const end = token.offset + token.text.length;
  if (token.kind === "other") {
    if (NO_SPACE.test(token.text)) return replaceText(token.offset, end, "");
    if (ODD_SPACE.test(token.text)) return replaceText(token.offset, end, " ");
    if (text.startsWith("//", token.offset)) return replaceText(token.offset, end + 1, "#");
    const curved = matchAt(CURVED_STRING, text, token.offset);
    if (curved !== undefined) {
      return replaceText(token.offset, token.offset + curved[0].length, `"${curved[1]}"`);
    }
  }
  if (isMark(token, ",") || isMark(token, ";")) return replaceText(token.offset, end, "");
  return undefined;
}

/** The value that was meant by a token that is none of this kind; `negative` when a minus sign stands before it. */
export function mendValue(
  text: string,
  token: Token,
  { kind, negative }: { readonly kind: ValueKind; readonly negative: boolean },
): ConfigMend | undefined {
  const begin = token.offset;
  if (token.text === "(" || isMark(token, "{") || isMark(token, "<")) {
    const match = matchAt(SCALARS_IN_BRACKETS, text, begin);
    if (match === undefined) return undefined;
    return replaceText(begin, begin + match[0].length, `[${match[1]}]`);
  }
  const candidate = candidateFor(text, token, kind);
  const sign = negative ? "-" : "";
  if (candidate === undefined || !isValue(sign + candidate.text, kind)) {
    return mendToken(text, token);
  }
  return replaceText(begin, begin + candidate.length, candidate.text);
}

interface Candidate {
  readonly text: string;
  /** Characters it stands for. */
  readonly length: number;
}

function candidateFor(text: string, token: Token, kind: ValueKind): Candidate | undefined {
  if ("enum" in kind) return enumCandidate(token, kind.enum);
  return kind.scalar === ScalarType.STRING
    ? stringCandidate(text, token)
    : scalarCandidate(token, kind.scalar);
}

function isValue(text: string, kind: ValueKind): boolean {
  const tokens = tokenizeText(text);
  const isNegative = tokens.length === 3 && tokens[0]?.text === "-";
  const token = tokens[isNegative ? 1 : 0];
  if (token === undefined || (tokens.length !== 2 && !isNegative)) return false;
  return "enum" in kind
    ? checkEnumToken(token, kind.enum, isNegative) === undefined
    : checkScalarToken(token, kind.scalar, isNegative) === undefined;
}

function stringCandidate(text: string, token: Token): Candidate | undefined {
  if (token.kind === "broken") {
    const match = matchAt(HALF_QUOTED, text, token.offset);
    return match && { text: `"${match[1]}"`, length: match[0].length };
  }
  if (token.kind !== "name" && token.kind !== "number" && token.text !== "/") return undefined;
  const word = matchAt(WORD, text, token.offset)?.[0];
  return word === undefined ? undefined : { text: `"${word}"`, length: word.length };
}

function scalarCandidate(token: Token, type: ScalarType): Candidate | undefined {
  const { length } = token.text;
  const bare = token.kind === "string" ? token.text.slice(1, -1).trim() : token.text;
  if (type === ScalarType.BOOL) {
    const word = BOOL_WORDS[bare.toLowerCase()] ?? bare;
    return { text: word, length };
  }
  const whole = WHOLE_NUMBER.exec(bare.replaceAll(/(?<=[0-9])_(?=[0-9])/g, ""));
  const isDecimal = type === ScalarType.FLOAT || type === ScalarType.DOUBLE;
  return { text: isDecimal ? bare : whole?.[1] ?? bare, length };
}

function enumCandidate(token: Token, descriptor: DescEnum): Candidate | undefined {
  if (token.kind !== "name" && token.kind !== "string") return undefined;
  const bare = token.kind === "string" ? token.text.slice(1, -1).trim() : token.text;
  const name = enumValueFor(bare, descriptor);
  return name === undefined ? undefined : { text: name, length: token.text.length };
}

/** Something else stands where a message belongs; `closer` closes the bracket around or after the token. */
export function mendMessage(
  message: DescMessage,
  at: {
    readonly text: string;
    readonly token: Token;
    readonly before: number;
    readonly closer: Token | undefined;
  },
): ConfigMend | undefined {
  const { token, closer } = at;
  const end = token.offset + token.text.length;
  const only = message.fields.find(({ name }) => message.fields.length === 1 || name === "enable");
  if (isOpener(token)) {
    if (closer === undefined) return undefined;
    const closed = closer.offset + 1;
    const isList = only?.fieldKind === "list";
    if (isList) return wrap(token.offset, closed, [`{ ${only?.name}: `, " }"]);
    return {
      edits: [
        { begin: token.offset, end, text: "{" },
        { begin: closer.offset, end: closed, text: "}" },
      ],
    };
  }
  const kind = only?.scalar === undefined ? undefined : { scalar: only.scalar };
  if (only !== undefined && kind !== undefined && only.fieldKind === "scalar") {
    const value: Candidate | undefined = isValue(token.text, kind)
      ? { text: token.text, length: token.text.length }
      : candidateFor(at.text, token, kind);
    if (value === undefined || !isValue(value.text, kind)) return undefined;
    const valueEnd = token.offset + value.length;
    return replaceText(token.offset, valueEnd, `{ ${only.name}: ${value.text} }`);
  }
  if (/^true$/i.test(token.text)) return replaceText(at.before, end, " { }");
  return undefined;
}

/** Fields of a list element that stand without its braces. */
export function mendBareElement(token: Token, closer: Token | undefined): ConfigMend | undefined {
  return closer === undefined ? undefined : wrap(token.offset, closer.offset, ["{ ", "} "]);
}

function wrap(begin: number, end: number, [open, close]: readonly [string, string]): ConfigMend {
  const edits: TextEdit[] = [
    { begin, end: begin, text: open },
    { begin: end, end, text: close },
  ];
  return { edits };
}

/** The field that was meant by a name that a message does not have. */
export function mendFieldName(
  name: { readonly offset: number; readonly text: string; readonly length: number },
  message: DescMessage,
): { readonly field: string; readonly mend: ConfigMend } | undefined {
  const field = fieldNameFor(name.text, message);
  if (field === undefined) return undefined;
  return { field, mend: replaceText(name.offset, name.offset + name.length, field) };
}

function matchAt(pattern: RegExp, text: string, offset: number): RegExpExecArray | undefined {
  pattern.lastIndex = offset;
  return pattern.exec(text) ?? undefined;
}
