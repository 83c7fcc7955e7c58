import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { CLOSING, isCloser, isMark, isOpener, TokenCursor } from "./model_config_cursor.ts";
import { hintForField, hintForMessage, hintForStrayToken } from "./model_config_hint.ts";
import type { ConfigIssue, ConfigPosition } from "./model_config_issue.ts";
import { describeToken, type Token } from "./model_config_tokens.ts";
import { checkEnumToken, checkScalarToken, type ValueFault } from "./model_config_value.ts";

/** What a scan over a text found. */
export interface TextScan {
  readonly issues: readonly ConfigIssue[];
  /** Path of every field that was given → its place. */
  readonly positions: ReadonlyMap<string, ConfigPosition>;
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
}

type MapField = DescField & { readonly fieldKind: "map" };
type ValueCheck = (token: Token, negative: boolean) => ValueFault | undefined;

class Scanner implements TextScan {
  readonly issues: ConfigIssue[] = [];
  readonly positions = new Map<string, ConfigPosition>();
  readonly #cursor: TokenCursor;
  readonly #spans: [number, number][] = [];
  /** Issues that lie in one of the spans. */
  #coveredCount = 0;

  constructor(text: string) {
    this.#cursor = new TokenCursor(text);
  }

  scanFile(message: DescMessage): void {
    const first = this.#cursor.peek();
    if (isMark(first, "{")) {
      const hint = "this looks like JSON; the file is in protobuf text format: name: value";
      this.#report("", first, { expected: "field name", hint });
      return;
    }
    if (first.text === "\ufeff") {
      const hint = "the file begins with a byte order mark, save it without";
      this.#report("", this.#cursor.next(), { expected: "field name", hint });
    }
    this.#scanFields(frameOf(message, ""));
  }

  get faultySpans(): readonly (readonly [number, number])[] | undefined {
    return this.#isFull || this.#coveredCount < this.issues.length ? undefined : this.#spans;
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
        if (open !== undefined) this.#reportOpen(frame.path, token, open);
        return;
      }
      if (token.kind === "name") {
        this.#scanField(frame);
        continue;
      }
      if (open !== undefined && isCloser(token)) {
        // The bracket around this message closes: the message's own closing mark was forgotten.
        this.#reportOpen(frame.path, token, open);
        return;
      }
      const expected = close === undefined ? "field name" : `field name or "${close}"`;
      this.#report(frame.path, token, { expected, ...optionalHint(hintForStrayToken(token)) });
      if (isCloser(token)) this.#cursor.next();
      else this.#cursor.skipToField(frame.message);
    }
  }

  #scanField(frame: MessageFrame): void {
    const { offset } = this.#cursor.peek();
    this.#scanFieldOf(frame);
    if (this.issues.length === this.#coveredCount) return;
    this.#coveredCount = this.issues.length;
    this.#spans.push([offset, this.#cursor.peek().offset]);
  }

  #scanFieldOf(frame: MessageFrame): void {
    const name = this.#cursor.next();
    const path = frame.path === "" ? name.text : `${frame.path}.${name.text}`;
    const field = frame.message.fields.find((candidate) => candidate.name === name.text);
    if (field === undefined) {
      this.#reportUnknownField(frame, path, name);
      return;
    }
    this.#checkSeen(frame, field, { path, name });
    const colon = this.#cursor.take(":");
    if (!colon && field.message === undefined && field.fieldKind !== "map") {
      this.#report(path, this.#cursor.peek(), { expected: `":"` });
    }
    if (field.fieldKind === "list" || field.fieldKind === "map") {
      this.#scanElements(frame, field, { path, name });
    } else this.#scanElement(frame, field, { path, at: name });
    this.#separator();
  }

  #scanElements(frame: MessageFrame, field: DescField, at: { path: string; name: Token }): void {
    if (!this.positions.has(at.path)) this.positions.set(at.path, at.name.position);
    const element = (): void => {
      const index = frame.counts.get(field.name) ?? 0;
      frame.counts.set(field.name, index + 1);
      this.#scanElement(frame, field, {
        path: `${at.path}[${index}]`,
        at: this.#cursor.peek(),
      });
    };
    if (isMark(this.#cursor.peek(), "[")) this.#scanList(at.path, element);
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
        this.#report(path, after, {
          expected: "another element",
          hint: "remove the comma before it",
        });
        this.#cursor.next();
        return;
      }
      if (token.kind === "end" || isCloser(token) || this.#cursor.startsField()) {
        this.#reportOpen(path, token, open);
        return;
      }
      this.#report(path, token, { expected: `"," or "]"` });
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
    if (descriptor !== undefined) {
      const check: ValueCheck = (token, negative) => checkEnumToken(token, descriptor, negative);
      this.#scanValue(at.path, check, frame.message);
    } else if (scalar !== undefined) this.#scanScalar(at.path, scalar, frame.message);
  }

  #scanMessage(frame: MessageFrame, name: string): void {
    const open = this.#cursor.peek();
    if (isMark(open, "{") || isMark(open, "<")) {
      this.#cursor.next();
      this.#scanFields(frame, open);
      return;
    }
    const hint = hintForMessage(frame.message, name);
    this.#report(frame.path, open, { expected: `"{"`, ...optionalHint(hint) });
    if (!this.#cursor.startsField()) this.#cursor.skipValue();
  }

  /** A map entry is a message with the fields `key` and `value`. */
  #scanMapEntry(field: MapField, path: string): void {
    const hint = `entries are written ${field.name} { key: … value: … }`;
    const open = this.#cursor.peek();
    if (!isMark(open, "{") && !isMark(open, "<")) {
      this.#report(path, open, { expected: `"{"`, hint });
      if (!this.#cursor.startsField()) this.#cursor.skipValue();
      return;
    }
    this.#cursor.next();
    const seen = new Set<string>();
    let entryPath = path;
    while (!this.#isFull && !this.#cursor.take(CLOSING[open.text] ?? "")) {
      const token = this.#cursor.peek();
      if (token.kind !== "name" || (token.text !== "key" && token.text !== "value")) {
        if (token.kind === "end" || isCloser(token)) this.#reportOpen(path, token, open);
        else {
          this.#report(path, token, { expected: "key or value", hint });
          this.#cursor.skipBehindCloser();
        }
        return;
      }
      this.#cursor.next();
      if (seen.has(token.text)) {
        this.#issue(`${entryPath}.${token.text}`, token.position, "given twice in one entry");
      }
      seen.add(token.text);
      const isMessage = token.text === "value" && field.mapKind === "message";
      if (!this.#cursor.take(":") && !isMessage) {
        this.#report(entryPath, this.#cursor.peek(), { expected: `":"` });
      }
      if (token.text === "key") {
        entryPath = `${path.slice(0, path.lastIndexOf("["))}[${this.#cursor.peek().text}]`;
        this.positions.set(entryPath, open.position);
        this.#scanScalar(path, field.mapKey);
      } else if (field.message !== undefined) {
        this.#scanMessage(frameOf(field.message, entryPath), "value");
      } else if (field.scalar !== undefined) this.#scanScalar(entryPath, field.scalar);
      this.#separator();
    }
  }

  #scanScalar(path: string, type: ScalarType, around?: DescMessage): void {
    const check: ValueCheck = (token, negative) => checkScalarToken(token, type, negative);
    this.#scanValue(path, check, around);
    while (type === ScalarType.STRING && this.#cursor.peek().kind === "string") {
      this.#scanValue(path, check);
    }
  }

  #scanValue(path: string, check: ValueCheck, around?: DescMessage): void {
    const start = this.#cursor.peek();
    const negative = this.#cursor.take("-");
    const token = this.#cursor.peek();
    const fault = check(token, negative);
    if (fault === undefined) {
      this.#cursor.next();
      return;
    }
    // The value is the beginning of the next field: it was left out.
    const isMissing = around !== undefined && this.#cursor.startsField(around);
    this.#report(path, start, isMissing ? { ...fault, hint: "the value is missing" } : fault);
    if (!isMissing) this.#cursor.skipValue();
  }

  #checkSeen(frame: MessageFrame, field: DescField, at: { path: string; name: Token }): void {
    if (field.fieldKind === "list" || field.fieldKind === "map") return;
    const before = frame.seen.get(field.name);
    if (before !== undefined) {
      const message = `given a second time, the first is at ${before.line}:${before.column}`;
      this.#issue(at.path, at.name.position, message, "only lists can be given in pieces");
    }
    const rival = field.oneof?.fields.find((other) =>
      other.name !== field.name && frame.seen.has(other.name)
    );
    frame.seen.set(field.name, at.name.position);
    const place = rival && frame.seen.get(rival.name);
    if (rival === undefined || place === undefined) return;
    const names = field.oneof?.fields.map((other) => other.name).join(", ");
    const message = `cannot stand beside ${rival.name} at ${place.line}:${place.column}`;
    this.#issue(at.path, at.name.position, message, `give only one of ${names}`);
  }

  /** One `,` or `;` may follow a field. */
  #separator(): void {
    if (!this.#cursor.take(",")) this.#cursor.take(";");
  }

  #reportUnknownField(frame: MessageFrame, path: string, name: Token): void {
    const message = `unknown field, ${frame.message.name} has no field ${name.text}`;
    this.#issue(path, name.position, message, hintForField(name.text, frame.message));
    const colon = this.#cursor.take(":");
    if (colon || isOpener(this.#cursor.peek())) {
      this.#cursor.take("-");
      if (!this.#cursor.startsField(frame.message)) this.#cursor.skipValue();
    }
    this.#separator();
  }

  #reportOpen(path: string, token: Token, open: Token): void {
    const { line, column } = open.position;
    const hint = `the ${open.text} at ${line}:${column} is not closed`;
    this.#report(path, token, { expected: `"${CLOSING[open.text]}"`, hint });
  }

  #report(path: string, token: Token, fault: ValueFault): void {
    const got = fault.got ?? describeToken(token);
    this.#issue(path, token.position, `${fault.expected} expected, got ${got}`, fault.hint);
  }

  #issue(path: string, position: ConfigPosition, message: string, hint = ""): void {
    this.issues.push({ path, position, message, ...optionalHint(hint) });
  }
}

function frameOf(message: DescMessage, path: string): MessageFrame {
  return { message, path, seen: new Map(), counts: new Map() };
}

function optionalHint(hint: string): { hint?: string } {
  return hint === "" ? {} : { hint };
}
