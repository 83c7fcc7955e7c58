import { isPadded, parseContentLength } from "./field_syntax.ts";
import { HeaderList } from "./header_list.ts";
import type { HeaderField } from "./hpack.ts";
import type { RequestHead } from "./transport.ts";

/** A checked request head of an HTTP/2 stream. */
export interface Http2RequestHead extends RequestHead {
  readonly httpVersion: "2";
  /** -1 when not given. */
  readonly contentLength: number;
  /** A POST whose content type is gRPC's. */
  readonly isRpc: boolean;
}

/**
 * Parses the request heads of one connection. Lists whose fields all come from the HPACK table consist of the same
 * objects each time; for those the last head is used again.
 */
export class RequestHeadParser {
  #lastFields: readonly HeaderField[] = [];
  #lastHead: Http2RequestHead | undefined;

  /** Undefined when the fields are malformed. */
  parse(fields: readonly HeaderField[]): Http2RequestHead | undefined {
    if (this.#isLast(fields)) return this.#lastHead;
    const head = parseRequestHead(fields);
    this.#lastFields = fields;
    this.#lastHead = head;
    return head;
  }

  #isLast(fields: readonly HeaderField[]): boolean {
    const last = this.#lastFields;
    if (last.length !== fields.length) return false;
    for (let index = 0; index < fields.length; index++) {
      if (last[index] !== fields[index]) return false;
    }
    return true;
  }
}

const PSEUDO_NAMES = [":method", ":scheme", ":path", ":authority"] as const;

/** Checks a request's fields (RFC 9113, 8.2 and 8.3); undefined when they are malformed. */
function parseRequestHead(fields: readonly HeaderField[]): Http2RequestHead | undefined {
  const pseudo: (string | undefined)[] = [undefined, undefined, undefined, undefined];
  let regularAt = 0;
  while (regularAt < fields.length && fields[regularAt]![0].charCodeAt(0) === 58) {
    const [name, value] = fields[regularAt++]!;
    const index = (PSEUDO_NAMES as readonly string[]).indexOf(name);
    if (index < 0 || pseudo[index] !== undefined || isPadded(value)) return undefined;
    pseudo[index] = value;
  }
  const [method, scheme, path, authority] = pseudo;
  if (method === undefined || scheme === undefined || !isPath(path)) return undefined;
  const list: HeaderField[] = [];
  const seen = { contentLength: -1, contentType: "", host: false, padding: false };
  for (let index = regularAt; index < fields.length; index++) {
    const field = fields[index]!;
    if (!noteField(field, seen)) return undefined;
    list.push(field);
  }
  const isRpc = method === "POST" && /^application\/grpc(?:$|[+;])/.test(seen.contentType);
  // gRPC clients send metadata as they are, and its protocol lets a server take them so.
  if (seen.padding && !isRpc) return undefined;
  if (authority !== undefined && !seen.host) list.push(["host", authority]);
  return {
    method,
    target: path,
    headers: new HeaderList(list),
    httpVersion: "2",
    contentLength: seen.contentLength,
    isRpc,
  };
}

/** Whether fields may end a request: no pseudo-headers, nothing of the connection. */
export function isTrailerSection(fields: readonly HeaderField[]): boolean {
  return fields.every(([name]) => name.charCodeAt(0) !== 58 && !isConnectionField(name));
}

interface SeenFields {
  contentLength: number;
  contentType: string;
  host: boolean;
  /** White space before or after a value. */
  padding: boolean;
}

function noteField([name, value]: HeaderField, seen: SeenFields): boolean {
  if (isPadded(value)) seen.padding = true;
  switch (name) {
    case "te":
      return value === "trailers";
    case "content-type":
      seen.contentType ||= value;
      return true;
    case "host":
      seen.host = true;
      return true;
    case "content-length": {
      const byteSize = parseContentLength(value);
      if (byteSize === undefined || (seen.contentLength >= 0 && seen.contentLength !== byteSize)) {
        return false;
      }
      seen.contentLength = byteSize;
      return true;
    }
    default:
      return name.charCodeAt(0) !== 58 && !isConnectionField(name);
  }
}

function isConnectionField(name: string): boolean {
  switch (name) {
    case "connection":
    case "keep-alive":
    case "proxy-connection":
    case "transfer-encoding":
    case "upgrade":
      return true;
    default:
      return false;
  }
}

function isPath(path: string | undefined): path is string {
  return path !== undefined && (path.charCodeAt(0) === 47 || path === "*") &&
    /^[\x21-\x7e]+$/.test(path);
}
