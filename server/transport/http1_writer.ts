import type { Connection, TransportContext } from "./connection.ts";
import { checkResponseField, isTransportField, statusHasBody } from "./http_exchange.ts";
import { releaseScratch, SCRATCH_BYTES, takeScratch } from "./scratch.ts";
import { TimedWriter } from "./timed_writer.ts";
import type { HttpResponse } from "./transport.ts";

/** Parts below this size are gathered into one write; larger ones are written where they lie. */
const LARGE_PART_BYTES = 16_384;

const REASON_PHRASES: Readonly<Record<number, string>> = {
  200: "OK",
  201: "Created",
  204: "No Content",
  304: "Not Modified",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  417: "Expectation Failed",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  499: "Client Closed Request",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  505: "HTTP Version Not Supported",
};

/** How one response is framed; follows from its request. */
export interface ResponseFraming {
  readonly isHead: boolean;
  readonly httpVersion: "1.0" | "1.1" | "2";
  readonly keepAlive: boolean;
}

type Fields = readonly (readonly [string, string])[];

/** Writes responses, and keeps the deadline of the write under way. */
export class Http1Writer {
  readonly #writer: TimedWriter;
  readonly #encoder = new TextEncoder();
  /** Field lines of frozen lists, which never change. */
  readonly #frozenLines = new WeakMap<Fields, string>();

  constructor(connection: Connection, context: TransportContext) {
    this.#writer = new TimedWriter(connection, context);
  }

  /** A write has been waiting for the peer for too long. */
  get isStalled(): boolean {
    return this.#writer.isStalled;
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#writer.write(bytes);
  }

  writeContinue(): Promise<void> {
    return this.write(this.#encoder.encode("HTTP/1.1 100 Continue\r\n\r\n"));
  }

  /** A response whose body is there as a whole. */
  writeWhole(
    response: HttpResponse,
    parts: readonly Uint8Array[],
    framing: ResponseFraming,
  ): Promise<void> {
    let byteSize = 0;
    for (const part of parts) byteSize += part.length;
    const hasBody = statusHasBody(response.status);
    const length = hasBody ? `content-length: ${byteSize}\r\n` : "";
    const head = this.#formatHead(response, framing, length);
    const written = hasBody && !framing.isHead ? parts : [];
    return 3 * head.length + byteSize < LARGE_PART_BYTES
      ? this.#writeOnce(head, written)
      : this.#gather(head, written);
  }

  /** The head of a response whose body follows in chunks, or up to the end of the connection. */
  async writeStreamHead(response: HttpResponse, framing: ResponseFraming): Promise<void> {
    const isChunked = framing.httpVersion === "1.1" && statusHasBody(response.status);
    const head = this.#formatHead(
      response,
      framing,
      isChunked ? "transfer-encoding: chunked\r\n" : "",
    );
    await this.#gather(head, []);
  }

  /** One piece of a streamed body. */
  async writeChunk(chunk: Uint8Array, framing: ResponseFraming): Promise<void> {
    if (chunk.length === 0) return;
    if (framing.httpVersion === "1.0") return await this.write(chunk);
    await this.#gather(`${chunk.length.toString(16)}\r\n`, [chunk, CHUNK_END]);
  }

  writeLastChunk(framing: ResponseFraming): Promise<void> {
    if (framing.httpVersion === "1.0") return Promise.resolve();
    return this.write(LAST_CHUNK);
  }

  #formatHead(response: HttpResponse, framing: ResponseFraming, length: string): string {
    const { status } = response;
    const fields = response.headers === undefined ? "" : this.#formatFields(response.headers);
    const connection = framing.keepAlive
      ? framing.httpVersion === "1.0" ? "connection: keep-alive\r\n" : ""
      : "connection: close\r\n";
    const reason = REASON_PHRASES[status] ?? "Status";
    return `HTTP/1.1 ${status} ${reason}\r\n${fields}${length}${connection}\r\n`;
  }

  #formatFields(fields: Fields): string {
    const known = this.#frozenLines.get(fields);
    if (known !== undefined) return known;
    let lines = "";
    for (const [name, value] of fields) {
      checkResponseField(name, value);
      if (!isTransportField(name)) lines += `${name}: ${value}\r\n`;
    }
    if (Object.isFrozen(fields)) this.#frozenLines.set(fields, lines);
    return lines;
  }

  /** Text and parts that fit into a scratch buffer together. */
  async #writeOnce(text: string, parts: readonly Uint8Array[]): Promise<void> {
    const scratch = takeScratch();
    try {
      let filled = this.#encoder.encodeInto(text, scratch).written;
      for (const part of parts) {
        scratch.set(part, filled);
        filled += part.length;
      }
      await this.write(scratch.subarray(0, filled));
    } finally {
      releaseScratch(scratch);
    }
  }

  /** Text and parts with as few writes as possible, large parts from where they lie. */
  async #gather(text: string, parts: readonly Uint8Array[]): Promise<void> {
    const scratch = takeScratch();
    try {
      let out = scratch;
      if (3 * text.length > SCRATCH_BYTES) out = new Uint8Array(3 * text.length);
      let filled = this.#encoder.encodeInto(text, out).written;
      for (const part of parts) {
        if (filled + part.length <= out.length && part.length < LARGE_PART_BYTES) {
          out.set(part, filled);
          filled += part.length;
          continue;
        }
        if (filled > 0) await this.write(out.subarray(0, filled));
        filled = 0;
        if (part.length >= LARGE_PART_BYTES) {
          await this.write(part);
        } else {
          out.set(part);
          filled = part.length;
        }
      }
      if (filled > 0) await this.write(out.subarray(0, filled));
    } finally {
      releaseScratch(scratch);
    }
  }
}

const CHUNK_END = Uint8Array.of(13, 10);
const LAST_CHUNK = Uint8Array.of(48, 13, 10, 13, 10);
