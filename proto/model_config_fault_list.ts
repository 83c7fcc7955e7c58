import type { DescMessage } from "@bufbuild/protobuf";
import { CLOSING, isCloser, isMark, isOpener, type TokenCursor } from "./model_config_cursor.ts";
import { hintForField } from "./model_config_hint.ts";
import type { ConfigIssue, ConfigMend, ConfigPosition, ConfigSpan } from "./model_config_issue.ts";
import { mendFieldName, mendToken, removeSpan, replaceText } from "./model_config_mend.ts";
import { describeToken, type Token } from "./model_config_tokens.ts";
import type { ValueFault } from "./model_config_value.ts";

type Report = ValueFault & { readonly mend?: ConfigMend | undefined };

/** The faults of a text, in the order they are found, each with its mend where only one is possible. */
export class FaultList {
  readonly issues: ConfigIssue[] = [];
  readonly #text: string;
  readonly #cursor: TokenCursor;

  constructor(text: string, cursor: TokenCursor) {
    this.#text = text;
    this.#cursor = cursor;
  }

  /** Returns where the name ends, as its author saw it. */
  unknownField(
    path: string,
    name: Token,
    frame: { readonly message: DescMessage; readonly seen: ReadonlyMap<string, unknown> },
  ): number {
    const dashed = /^[A-Za-z0-9_-]*/.exec(this.#text.slice(name.offset, name.offset + 100))![0];
    const isQuoted = this.#text.startsWith('"', name.offset);
    const given = isQuoted || !dashed.includes("-") ? name.text : dashed;
    const meant = mendFieldName(
      { offset: name.offset, text: given, length: given.length + (isQuoted ? 2 : 0) },
      frame.message,
    );
    const isTaken = meant !== undefined && frame.seen.has(meant.field);
    this.add(path, name.position, {
      message: `unknown field, ${frame.message.name} has no field ${given}`,
      hint: hintForField(given, frame.message),
      mend: isTaken ? undefined : meant?.mend,
    });
    return name.offset + given.length;
  }

  /** A field that stands at `before` already. */
  givenTwice(
    { path, name, before }: {
      readonly path: string;
      readonly name: Token;
      readonly before: ConfigPosition;
    },
    [first, again]: readonly [ConfigSpan | undefined, ConfigSpan],
  ): void {
    const valueOf = (span: ConfigSpan) => this.#text.slice(span.valueBegin, span.end);
    // The same once more says nothing new; of two values one must be chosen.
    const isSame = first !== undefined && valueOf(first) === valueOf(again);
    this.add(path, name.position, {
      message: `given a second time, the first is at ${before.line}:${before.column}`,
      hint: "only lists can be given in pieces",
      mend: isSame ? { edits: [removeSpan(this.#text, again)] } : undefined,
    });
  }

  /** A bracket without its end; `endsAt` = where the layout says it should be. */
  notClosed(path: string, token: Token, open: Token, endsAt?: number): void {
    const { line, column } = open.position;
    const hint = `the ${open.text} at ${line}:${column} is not closed`;
    const closing = CLOSING[open.text] ?? "";
    const at = endsAt ?? this.#cursor.consumedEnd;
    const isOneLine = !this.#text.slice(open.offset, at).includes("\n");
    const mend = replaceText(at, at, isOneLine ? ` ${closing}` : `\n${closing}`);
    this.expected(path, token, { expected: `"${closing}"`, hint, mend });
  }

  /** Something else stands where this was expected. */
  expected(path: string, token: Token, { expected, got, hint, mend }: Report): void {
    this.add(path, token.position, {
      message: `${expected} expected, got ${got ?? describeToken(token)}`,
      hint,
      mend: mend ?? mendToken(this.#text, token),
    });
  }

  /** Any other fault. */
  add(
    path: string,
    position: ConfigPosition,
    { message, hint = "", mend }: {
      readonly message: string;
      readonly hint?: string | undefined;
      readonly mend?: ConfigMend | undefined;
    },
  ): void {
    this.issues.push({
      path,
      position,
      message,
      ...optionalHint(hint),
      ...(mend === undefined ? {} : { mend }),
    });
  }
}

/** A field name in quotes as a name; undefined for anything else. */
export function bareName(token: Token, after: Token): Token | undefined {
  if (token.kind !== "string" || !(isMark(after, ":") || isOpener(after))) return undefined;
  const text = token.text.slice(1, -1);
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(text)) return undefined;
  return { ...token, kind: "name", text };
}

/** True for a field on a later line than its message begins, no further right: it hardly belongs to it. */
export function isOutdented(text: string, token: Token, open: Token): boolean {
  if (token.position.line === open.position.line || isCloser(token)) return false;
  const lineStart = text.lastIndexOf("\n", open.offset) + 1;
  const indent = /^[ \t]*/.exec(text.slice(lineStart, open.offset))?.[0].length ?? 0;
  return token.position.column <= indent + 1;
}

function optionalHint(hint: string): { hint?: string } {
  return hint === "" ? {} : { hint };
}
