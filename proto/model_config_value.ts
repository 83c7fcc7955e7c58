import { type DescEnum, ScalarType } from "@bufbuild/protobuf";
import { hintForEnumValue } from "./model_config_hint.ts";
import { describeToken, type Token } from "./model_config_tokens.ts";

/** What is wrong with a value. */
export interface ValueFault {
  readonly expected: string;
  readonly got?: string;
  readonly hint?: string;
}

const INTEGER = /^(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)$/;
const DECIMAL = /^(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?$/;
const ESCAPE =
  /\\(?:["'\\?abfnrtv]|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3]?[0-7]{1,2})|\\/g;

const RANGES: ReadonlyMap<ScalarType, readonly [bigint, bigint, string]> = new Map([
  [ScalarType.INT32, [-(2n ** 31n), 2n ** 31n - 1n, "integer"]],
  [ScalarType.INT64, [-(2n ** 63n), 2n ** 63n - 1n, "integer"]],
  [ScalarType.UINT32, [0n, 2n ** 32n - 1n, "non-negative integer"]],
  [ScalarType.UINT64, [0n, 2n ** 64n - 1n, "non-negative integer"]],
]);

const LISTED_NAMES_MAX = 6;
/** How sizes that may vary are written elsewhere. */
const ANY_SIZE = /^(?:none|null|\?)$/i;
const TEMPLATE_HINT = "this looks like a template that was not filled in";

/** Checks the token of a scalar; `negative` when a minus sign stands before it. */
export function checkScalarToken(
  token: Token,
  type: ScalarType,
  negative: boolean,
): ValueFault | undefined {
  const fault = scalarFault(token, type, negative);
  if (fault === undefined) return undefined;
  const got = fault.got ?? (negative ? "-" : "") + describeToken(token);
  return { ...fault, got, ...(hintFor(token, fault)) };
}

/** Checks the token of an enum value. */
export function checkEnumToken(
  token: Token,
  descriptor: DescEnum,
  negative: boolean,
): ValueFault | undefined {
  const names = descriptor.values.map((entry) => entry.name);
  const got = (negative ? "-" : "") + describeToken(token);
  const fault = (hint: string): ValueFault => {
    // A long list says less than the one name that was meant.
    const isLong = names.length > LISTED_NAMES_MAX && hint !== "";
    const expected = isLong ? `a value of ${descriptor.name}` : `one of ${names.join(", ")}`;
    return { expected, got, ...(hint === "" ? {} : { hint }) };
  };
  if (token.kind === "name" && !negative) {
    if (names.includes(token.text)) return undefined;
    return fault(hintForEnumValue(token.text, descriptor));
  }
  if (token.kind === "number" && INTEGER.test(token.text)) {
    const value = integerOf(token.text) * (negative ? -1n : 1n);
    if (descriptor.values.some((entry) => BigInt(entry.number) === value)) return undefined;
  }
  if (token.kind === "string") {
    const bare = token.text.slice(1, -1);
    const isKnown = names.includes(bare);
    return fault(
      isKnown ? "enum values stand without quotes" : hintForEnumValue(bare, descriptor),
    );
  }
  return fault(token.kind === "template" ? TEMPLATE_HINT : "");
}

function scalarFault(token: Token, type: ScalarType, negative: boolean): ValueFault | undefined {
  switch (type) {
    case ScalarType.STRING:
      return stringFault(token, negative);
    case ScalarType.BOOL:
      return isBool(token, negative) ? undefined : { expected: "true or false" };
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return isNumber(token) ? undefined : { expected: "number" };
    default:
      return integerFault(token, type, negative);
  }
}

function integerFault(token: Token, type: ScalarType, negative: boolean): ValueFault | undefined {
  const [least, most, word] = RANGES.get(type) ?? [0n, 0n, "integer"];
  if (type === ScalarType.INT64 && ANY_SIZE.test(token.text)) {
    return { expected: word, hint: "-1 stands for any size" };
  }
  if (token.kind !== "number" || !INTEGER.test(token.text)) return { expected: word };
  if (negative && least === 0n) return { expected: word };
  const value = integerOf(token.text) * (negative ? -1n : 1n);
  if (value >= least && value <= most) return undefined;
  return { expected: `an integer from ${least} to ${most}` };
}

function stringFault(token: Token, negative: boolean): ValueFault | undefined {
  if (token.kind !== "string" || negative) return { expected: "string" };
  for (const [escape] of token.text.matchAll(ESCAPE)) {
    if (escape === "\\") {
      return { expected: "a known escape sequence", hint: "a backslash itself is written \\\\" };
    }
    const code = /^\\[uU]/.test(escape) ? parseInt(escape.slice(2), 16) : 0;
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      return { expected: `a character that exists, not ${escape}` };
    }
  }
  return undefined;
}

function isBool(token: Token, negative: boolean): boolean {
  if (negative) return false;
  if (token.kind === "name") {
    return ["true", "True", "t", "false", "False", "f"].includes(token.text);
  }
  return token.kind === "number" && INTEGER.test(token.text) && integerOf(token.text) <= 1n;
}

function isNumber(token: Token): boolean {
  if (token.kind === "name") return /^(?:inf|infinity|nan)$/i.test(token.text);
  return token.kind === "number" && DECIMAL.test(token.text);
}

function integerOf(text: string): bigint {
  return /^0[0-7]+$/.test(text) ? BigInt(`0o${text.slice(1)}`) : BigInt(text);
}

function hintFor(token: Token, fault: ValueFault): { hint?: string } {
  if (fault.hint !== undefined) return {};
  if (token.kind === "template" || /\$\{|\{\{/.test(token.text)) return { hint: TEMPLATE_HINT };
  if (token.kind === "broken") return { hint: "the closing quote is missing" };
  if (fault.expected === "string" && (token.kind === "name" || token.kind === "number")) {
    return { hint: `strings stand in quotes: "${token.text}"` };
  }
  if (fault.expected !== "string" && token.kind === "string") {
    return { hint: "this value stands without quotes" };
  }
  return {};
}
