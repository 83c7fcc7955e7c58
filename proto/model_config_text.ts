import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { CLOSING, isCloser, isMark, isOpener, TokenCursor } from "./model_config_cursor.ts";
import { bareName, FaultList, isOutdented } from "./model_config_fault_list.ts";
import { hintForMessage, hintForStrayToken } from "./model_config_hint.ts";
import type { ConfigIssue, ConfigPosition, ConfigSpan } from "./model_config_issue.ts";
import {
  mendBareElement,
  mendMessage,
  mendValue,
  replaceText,
  type ValueKind,
} from "./model_config_mend.ts";
import type { Token } from "./model_config_tokens.ts";
import { checkEnumToken, checkScalarToken } from "./model_config_value.ts";

/** What a scan over a text found. */
export interface TextScan {
  readonly issues: readonly ConfigIssue[];
  /** Path of every field that was given → its place. */
  readonly positions: ReadonlyMap<string, ConfigPosition>;
  /** Path of every field and list element → where it stands. */
  readonly spans: ReadonlyMap<string, ConfigSpan>;
  /** The rest of the text was not looked at: there were too many faults. */
  readonly isCut: boolean;
  /** The innermost fields around all faults, as [begin, end) in the text; undefined if some fault is in no field. */
  readonly faultySpans: readonly (readonly [number, number])[] | undefined;
}

/** After this many faults the rest of the file is not looked at. */
const ISSUES_MAX = 100;

/**
 * Reads protobuf text format against a message without building it. In contrast to the library's parser it tells the
 * line, column, field path and likely cause of a fault, and goes on behind it, so that all faults come out together.
 */
export function scanConfigText(text: string, message: DescMessage): TextScan {
  const scanner = new Scanner(text);
  scanner.scanFile(message);
  return scanner;
}

/** A message being read. */
interface MessageFrame {
  readonly message: DescMessage;
  readonly path: string;
  /** Places of the fields given so far, by name. */
  readonly seen: Map<string, ConfigPosition>;
  /** Elements of each list so far, by name. */
  readonly counts: Map<string, number>;
  /** Where the message should have been closed, as its layout tells: before a field that is not indented. */
  endsAt?: number;
}

/** A field that is being read. */
interface FieldPlace {
  readonly path: string;
  readonly name: Token;
}

type MapField = DescField & { readonly fieldKind: "map" };

class Scanner implements TextScan {
  readonly positions = new Map<string, ConfigPosition>();
  readonly spans = new Map<string, ConfigSpan>();
  readonly #text: string;
  readonly #faults: FaultList;
  readonly #cursor: TokenCursor;
  readonly #spans: [number, number][] = [];
  /** Issues that lie in one of the spans. */
  #coveredCount = 0;

  constructor(text: string) {
    this.#text = text;
    this.#cursor = new TokenCursor(text);
    this.#faults = new FaultList(text, this.#cursor);
  }

  get issues(): readonly ConfigIssue[] {
    return this.#faults.issues;
  }

  scanFile(message: DescMessage): void {
    const first = this.#cursor.peek();
    if (isMark(first, "{")) {
      const hint = "this looks like JSON; the file is in protobuf text format: name: value";
      this.#faults.expected("", first, { expected: "field name", hint });
      return;
    }
    if (first.text === "\ufeff") {
      const hint = "the file begins with a byte order mark, save it without";
      this.#faults.expected("", this.#cursor.next(), { expected: "field name", hint });
    }
    this.#scanFields(frameOf(message, ""));
  }

  get faultySpans(): readonly (readonly [number, number])[] | undefined {
    return this.#isFull || this.#coveredCount < this.issues.length ? undefined : this.#spans;
  }

  get isCut(): boolean {
    return this.#isFull;
  }

  get #isFull(): boolean {
    return this.issues.length >= ISSUES_MAX;
  }

  /** Reads fields up to the mark that closes `open`; without `open` to the end of the file. */
  #scanFields(frame: MessageFrame, open?: Token): void {
    const close = open && CLOSING[open.text];
    while (!this.#isFull) {
      const token = this.#cursor.peek();
      if (close !== undefined && this.#cursor.take(close)) return;
      if (token.kind === "end") {
        if (open !== undefined) this.#faults.notClosed(frame.path, token, open, frame.endsAt);
        return;
      }
      if (open !== undefined && isOutdented(this.#text, token, open)) {
        frame.endsAt ??= this.#cursor.consumedEnd;
      }
      if (token.kind === "name") {
        this.#scanField(frame, token);
        continue;
      }
      if (open !== undefined && isCloser(token)) {
        // The bracket around this message closes: the message's own closing mark was forgotten.
        this.#faults.notClosed(frame.path, token, open, frame.endsAt);
        return;
      }
      const expected = close === undefined ? "field name" : `field name or "${close}"`;
      const bare = bareName(token, this.#cursor.peek(1));
      const { offset, text } = token;
      const mend = bare !== undefined
        ? replaceText(offset, offset + text.length, bare.text)
        : isCloser(token)
        ? replaceText(offset, offset + 1, "")
        : undefined;
      this.#faults.expected(frame.path, token, {
        expected,
        ...optionalHint(hintForStrayToken(token)),
        mend,
      });
      if (bare !== undefined) this.#scanField(frame, bare);
      else if (isCloser(token)) this.#cursor.next();
      else if (this.#text.startsWith("//", token.offset)) this.#cursor.skipLine();
      else this.#cursor.skipToField(frame.message);
    }
  }

  #scanField(frame: MessageFrame, name: Token): void {
    const { offset } = this.#cursor.next();
    this.#scanFieldOf(frame, name);
    if (this.issues.length === this.#coveredCount) return;
    this.#coveredCount = this.issues.length;
    this.#spans.push([offset, this.#cursor.peek().offset]);
  }

  #scanFieldOf(frame: MessageFrame, name: Token): void {
    const path = frame.path === "" ? name.text : `${frame.path}.${name.text}`;
    const field = frame.message.fields.find((candidate) => candidate.name === name.text);
    if (field === undefined) {
      this.#reportUnknownField(frame, path, name);
      return;
    }
    const before = this.#checkSeen(frame, field, { path, name });
    const colon = this.#cursor.take(":");
    const next = this.#cursor.peek();
    if (!colon && next.text === "=") {
      const mend = replaceText(next.offset, next.offset + 1, ":");
      this.#faults.expected(path, next, { expected: `":"`, mend });
      this.#cursor.next();
    } else if (!colon && field.message === undefined && field.fieldKind !== "map") {
      const mend = replaceText(this.#cursor.consumedEnd, this.#cursor.consumedEnd, ":");
      this.#faults.expected(path, next, { expected: `":"`, mend });
    }
    const valueBegin = this.#cursor.peek().offset;
    if (field.fieldKind === "list" || field.fieldKind === "map") {
      this.#scanElements(frame, field, { path, name });
    } else this.#scanElement(frame, field, { path, at: name });
    const span = { begin: name.offset, valueBegin, end: this.#cursor.consumedEnd };
    if (before !== undefined) {
      this.#faults.givenTwice({ path, name, before }, [this.spans.get(path), span]);
    } else if (field.fieldKind !== "list" || !this.spans.has(path)) this.spans.set(path, span);
    this.#separator();
  }

  #scanElements(frame: MessageFrame, field: DescField, at: FieldPlace): void {
    if (!this.positions.has(at.path)) this.positions.set(at.path, at.name.position);
    const isBracket = isMark(this.#cursor.peek(), "[");
    const element = (): void => {
      const index = frame.counts.get(field.name) ?? 0;
      frame.counts.set(field.name, index + 1);
      const path = `${at.path}[${index}]`;
      const token = this.#cursor.peek();
      this.#scanElement(frame, field, { path, at: token });
      const begin = isBracket ? token.offset : at.name.offset;
      this.spans.set(path, { begin, valueBegin: token.offset, end: this.#cursor.consumedEnd });
    };
    if (isBracket) this.#scanList(at.path, element);
    else element();
  }

  #scanList(path: string, element: () => void): void {
    const open = this.#cursor.next();
    if (this.#cursor.take("]")) return;
    while (!this.#isFull) {
      element();
      if (this.#cursor.take("]")) return;
      const token = this.#cursor.peek();
      if (this.#cursor.take(",")) {
        const after = this.#cursor.peek();
        if (!isMark(after, "]")) continue;
        this.#faults.expected(path, after, {
          expected: "another element",
          hint: "remove the comma before it",
          mend: replaceText(token.offset, token.offset + 1, ""),
        });
        this.#cursor.next();
        return;
      }
      if (token.kind === "end" || isCloser(token) || this.#cursor.startsField()) {
        this.#faults.notClosed(path, token, open);
        return;
      }
      const mend = token.kind === "other"
        ? undefined
        : replaceText(this.#cursor.consumedEnd, this.#cursor.consumedEnd, ",");
      this.#faults.expected(path, token, { expected: `"," or "]"`, mend });
      if (token.kind === "mark" && !isOpener(token) && !isMark(token, "-")) this.#cursor.next();
    }
  }

  #scanElement(frame: MessageFrame, field: DescField, at: { path: string; at: Token }): void {
    if (field.fieldKind === "map") {
      this.#scanMapEntry(field, at.path);
      return;
    }
    if (field.message !== undefined) {
      this.positions.set(at.path, at.at.position);
      this.#scanMessage(frameOf(field.message, at.path), field.name);
      return;
    }
    this.positions.set(at.path, this.#cursor.peek().position);
    const { enum: descriptor, scalar } = field;
    if (descriptor !== undefined) this.#scanValue(at.path, { enum: descriptor }, frame.message);
    else if (scalar !== undefined) this.#scanScalar(at.path, scalar, frame.message);
  }

  #scanMessage(frame: MessageFrame, name: string): void {
    const open = this.#cursor.peek();
    if (isMark(open, "{") || isMark(open, "<")) {
      this.#cursor.next();
      this.#scanFields(frame, open);
      return;
    }
    const hint = hintForMessage(frame.message, name);
    const closer = this.#cursor.closerAhead();
    const mend = this.#cursor.startsField(frame.message)
      ? mendBareElement(open, closer)
      : mendMessage(frame.message, {
        text: this.#text,
        token: open,
        before: this.#cursor.consumedEnd,
        closer,
      });
    this.#faults.expected(frame.path, open, { expected: `"{"`, ...optionalHint(hint), mend });
    // Only the braces are missing.
    if (this.#cursor.startsField(frame.message)) {
      while (!this.#isFull && this.#cursor.startsField(frame.message)) {
        this.#scanField(frame, this.#cursor.peek());
      }
    } else if (!this.#cursor.startsField()) this.#cursor.skipValue();
  }

  /** A map entry is a message with the fields `key` and `value`. */
  #scanMapEntry(field: MapField, path: string): void {
    const hint = `entries are written ${field.name} { key: … value: … }`;
    const open = this.#cursor.peek();
    if (!isMark(open, "{") && !isMark(open, "<")) {
      this.#faults.expected(path, open, { expected: `"{"`, hint });
      if (!this.#cursor.startsField()) this.#cursor.skipValue();
      return;
    }
    this.#cursor.next();
    const seen = new Set<string>();
    let entryPath = path;
    while (!this.#isFull && !this.#cursor.take(CLOSING[open.text] ?? "")) {
      const token = this.#cursor.peek();
      if (token.kind !== "name" || (token.text !== "key" && token.text !== "value")) {
        if (token.kind === "end" || isCloser(token)) this.#faults.notClosed(path, token, open);
        else {
          this.#faults.expected(path, token, { expected: "key or value", hint });
          this.#cursor.skipBehindCloser();
        }
        return;
      }
      this.#cursor.next();
      if (seen.has(token.text)) {
        this.#faults.add(`${entryPath}.${token.text}`, token.position, {
          message: "given twice in one entry",
        });
      }
      seen.add(token.text);
      const isMessage = token.text === "value" && field.mapKind === "message";
      if (!this.#cursor.take(":") && !isMessage) {
        const { consumedEnd } = this.#cursor;
        const mend = replaceText(consumedEnd, consumedEnd, ":");
        this.#faults.expected(entryPath, this.#cursor.peek(), { expected: `":"`, mend });
      }
      if (token.text === "key") {
        entryPath = `${path.slice(0, path.lastIndexOf("["))}[${this.#cursor.peek().text}]`;
        this.positions.set(entryPath, open.position);
        this.#scanScalar(path, field.mapKey);
      } else if (field.message !== undefined) {
        this.#scanMessage(frameOf(field.message, entryPath), "value");
      } else if (field.scalar !== undefined) {
        const valueBegin = this.#cursor.peek().offset;
        this.#scanScalar(entryPath, field.scalar);
        this.spans.set(entryPath, {
          begin: open.offset,
          valueBegin,
          end: this.#cursor.consumedEnd,
        });
      }
      this.#separator();
    }
  }

  #scanScalar(path: string, scalar: ScalarType, around?: DescMessage): void {
    this.#scanValue(path, { scalar }, around);
    while (scalar === ScalarType.STRING && this.#cursor.peek().kind === "string") {
      this.#scanValue(path, { scalar });
    }
  }

  #scanValue(path: string, kind: ValueKind, around?: DescMessage): void {
    const start = this.#cursor.peek();
    const negative = this.#cursor.take("-");
    const token = this.#cursor.peek();
    const fault = "enum" in kind
      ? checkEnumToken(token, kind.enum, negative)
      : checkScalarToken(token, kind.scalar, negative);
    if (fault === undefined) {
      this.#cursor.next();
      return;
    }
    // The value is the beginning of the next field: it was left out.
    const isMissing = around !== undefined && this.#cursor.startsField(around);
    if (isMissing) this.#faults.expected(path, start, { ...fault, hint: "the value is missing" });
    else {
      const mend = mendValue(this.#text, token, { kind, negative });
      this.#faults.expected(path, start, { ...fault, mend });
    }
    if (!isMissing) this.#cursor.skipValue();
  }

  /** Returns where the same field was given before. */
  #checkSeen(frame: MessageFrame, field: DescField, at: FieldPlace): ConfigPosition | undefined {
    if (field.fieldKind === "list" || field.fieldKind === "map") return undefined;
    const before = frame.seen.get(field.name);
    const rival = field.oneof?.fields.find((other) =>
      other.name !== field.name && frame.seen.has(other.name)
    );
    frame.seen.set(field.name, at.name.position);
    const place = rival && frame.seen.get(rival.name);
    if (rival === undefined || place === undefined) return before;
    const names = field.oneof?.fields.map((other) => other.name).join(", ");
    const message = `cannot stand beside ${rival.name} at ${place.line}:${place.column}`;
    this.#faults.add(at.path, at.name.position, { message, hint: `give only one of ${names}` });
    return before;
  }

  /** One `,` or `;` may follow a field. */
  #separator(): void {
    if (!this.#cursor.take(",")) this.#cursor.take(";");
  }

  #reportUnknownField(frame: MessageFrame, path: string, name: Token): void {
    const end = this.#faults.unknownField(path, name, frame);
    while (this.#cursor.peek().offset < end) this.#cursor.next();
    const colon = this.#cursor.take(":");
    if (colon || isOpener(this.#cursor.peek())) {
      this.#cursor.take("-");
      if (!this.#cursor.startsField(frame.message)) this.#cursor.skipValue();
    }
    this.#separator();
  }
}

function frameOf(message: DescMessage, path: string): MessageFrame {
  return { message, path, seen: new Map(), counts: new Map() };
}

function optionalHint(hint: string): { hint?: string } {
  return hint === "" ? {} : { hint };
}
