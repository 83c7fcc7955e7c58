import { hasListMember, parseContentLength, tokenCharacters } from "./field_syntax.ts";
import { HeaderList, type SentFields } from "./header_list.ts";
import { HttpError } from "./http_error.ts";
import type { RequestHead } from "./transport.ts";

const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const COLON = 58;
const DELETE = 127;

/** A parsed and checked request head: what the handler sees, and how the message is framed. */
export interface ParsedHead extends RequestHead {
  /** -1 for a chunked body. */
  readonly contentLength: number;
  readonly keepAlive: boolean;
  readonly expectsContinue: boolean;
  readonly bytes: Uint8Array;
}

/**
 * Looks for the empty line that ends a head in `bytes[start, end)`, of which the part before `from` was looked at
 * before. Returns the index behind it, or -1. Throws when a line does not end with CR LF.
 */
export function findHeadEnd(
  bytes: Uint8Array,
  { start, end, from }: { start: number; end: number; from: number },
): number {
  for (let at = bytes.indexOf(LF, from); at >= 0 && at < end; at = bytes.indexOf(LF, at + 1)) {
    if (at === start || bytes[at - 1] !== CR) {
      throw new HttpError(400, "Line does not end with CR LF");
    }
    if (at - start >= 3 && bytes[at - 2] === LF) return at + 1;
  }
  return -1;
}

/** Parses a whole head, the empty line at its end included. Throws HttpError. */
export function parseHead(head: Uint8Array, maxFieldCount: number): ParsedHead {
  const text = decodeLatin1(head);
  const lineEnd = text.indexOf("\r\n");
  const { method, target, version } = parseRequestLine(text.slice(0, lineEnd));
  const { fields, sent } = parseFields({ head, text, start: lineEnd + 2, maxFieldCount });
  return frameRequest({ method, target, version, fields, sent, bytes: head });
}

function parseRequestLine(line: string) {
  const match = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP\/([0-9])\.([0-9])$/.exec(line);
  if (match === null) throw new HttpError(400, "Request line is malformed");
  const [, method, target, major, minor] = match as unknown as [
    string,
    string,
    string,
    string,
    string,
  ];
  if (major !== "1" || (minor !== "0" && minor !== "1")) {
    throw new HttpError(505, `HTTP version ${major}.${minor} is not supported`);
  }
  const version: "1.0" | "1.1" = minor === "0" ? "1.0" : "1.1";
  return { method, target: originForm(method, target), version };
}

/** Path and query of a request target in any of its forms. */
function originForm(method: string, target: string): string {
  if (target.charCodeAt(0) === 47 || target === "*" || method === "CONNECT") return target;
  const match = /^https?:\/\/[^/?#]+([^#]*)$/i.exec(target);
  if (match === null) throw new HttpError(400, "Request target is malformed");
  const rest = match[1]!;
  return rest.startsWith("/") ? rest : `/${rest}`;
}

interface FieldLines {
  readonly head: Uint8Array;
  readonly text: string;
  readonly start: number;
  readonly maxFieldCount: number;
}

interface Fields {
  /** Names in lower case. */
  readonly fields: [string, string][];
  readonly sent: SentFields;
}

function parseFields({ head, text, start, maxFieldCount }: FieldLines): Fields {
  const fields: [string, string][] = [];
  const names: string[] = [];
  let trailing: Map<number, string> | undefined;
  const end = head.length - 2;
  let at = start;
  while (at < end) {
    if (fields.length === maxFieldCount) {
      throw new HttpError(431, `Request has more than ${maxFieldCount} header fields`);
    }
    const colon = findNameEnd(head, at);
    const name = text.slice(at, colon);
    const lineEnd = findValueEnd(head, colon + 1);
    names.push(name);
    const from = skipBlanks(head, colon + 1, lineEnd);
    const to = skipBlanksBack(head, from, lineEnd);
    if (to < lineEnd) (trailing ??= new Map()).set(fields.length, text.slice(to, lineEnd));
    fields.push([name.toLowerCase(), text.slice(from, to)]);
    at = lineEnd + 2;
  }
  return { fields, sent: { names, trailing } };
}

/** The colon behind a field name; names are tokens, with no space before the colon and no folded lines. */
function findNameEnd(head: Uint8Array, start: number): number {
  const table = tokenCharacters();
  let at = start;
  while (table[head[at]!] === 1) at++;
  if (at === start || head[at] !== COLON) {
    throw new HttpError(400, "Header field name is malformed");
  }
  return at;
}

function findValueEnd(head: Uint8Array, start: number): number {
  for (let at = start;; at++) {
    const byte = head[at]!;
    if (byte >= SPACE ? byte !== DELETE : byte === TAB) continue;
    if (byte === CR && head[at + 1] === LF) return at;
    throw new HttpError(400, "Header field value has a character that is not allowed");
  }
}

/** Only space and tab are white space here: `trim()` would take away more, and peers would disagree. */
function skipBlanks(head: Uint8Array, start: number, end: number): number {
  let at = start;
  while (at < end && (head[at] === SPACE || head[at] === TAB)) at++;
  return at;
}

function skipBlanksBack(head: Uint8Array, start: number, end: number): number {
  let at = end;
  while (at > start && (head[at - 1] === SPACE || head[at - 1] === TAB)) at--;
  return at;
}

interface RawRequest extends Fields {
  readonly method: string;
  readonly target: string;
  readonly version: "1.0" | "1.1";
  readonly bytes: Uint8Array;
}

/** Decides how the body is framed; whatever two parsers could read differently is refused. */
function frameRequest({ method, target, version, fields, sent, bytes }: RawRequest): ParsedHead {
  let contentLength: number | undefined;
  let chunked = false;
  let hostCount = 0;
  let expectsContinue = false;
  let close = false;
  let keep = false;
  for (const [name, value] of fields) {
    switch (name) {
      case "content-length":
        if (contentLength !== undefined) throw new HttpError(400, "Content-Length is repeated");
        contentLength = parseContentLength(value);
        if (contentLength === undefined) throw new HttpError(400, "Content-Length is malformed");
        break;
      case "transfer-encoding":
        if (chunked) throw new HttpError(400, "Transfer-Encoding is repeated");
        checkTransferEncoding(value, version);
        chunked = true;
        break;
      case "host":
        if (++hostCount > 1) throw new HttpError(400, "Host is repeated");
        break;
      case "expect":
        if (value.toLowerCase() !== "100-continue") {
          throw new HttpError(417, "Expect asks for something other than 100-continue");
        }
        expectsContinue = version === "1.1";
        break;
      case "connection":
        close ||= hasListMember(value, "close");
        keep ||= hasListMember(value, "keep-alive");
    }
  }
  if (chunked && contentLength !== undefined) {
    throw new HttpError(400, "Content-Length and Transfer-Encoding are both present");
  }
  if (version === "1.1" && hostCount === 0) throw new HttpError(400, "Host is missing");
  return {
    method,
    target,
    headers: new HeaderList(fields, sent),
    httpVersion: version,
    contentLength: chunked ? -1 : contentLength ?? 0,
    keepAlive: !close && (version === "1.1" || keep),
    expectsContinue,
    bytes,
  };
}

function checkTransferEncoding(value: string, version: "1.0" | "1.1"): void {
  if (version === "1.0") throw new HttpError(400, "Transfer-Encoding is not allowed in HTTP/1.0");
  if (value.toLowerCase() !== "chunked") {
    throw new HttpError(501, "Transfer-Encoding other than chunked is not supported");
  }
}

/** One character per byte; the decoder of the platform calls windows-1252 by that name. */
function decodeLatin1(bytes: Uint8Array): string {
  if (isAscii(bytes)) return new TextDecoder().decode(bytes);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function isAscii(bytes: Uint8Array): boolean {
  for (let at = 0; at < bytes.length; at++) {
    if (bytes[at]! > 127) return false;
  }
  return true;
}
