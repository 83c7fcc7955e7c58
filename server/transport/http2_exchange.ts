import type { TransportContext } from "./connection.ts";
import {
  bodyTooLarge,
  ERROR_FIELDS,
  formatErrorBody,
  HttpError,
  noBodyMemory,
} from "./http_error.ts";
import {
  checkResponseField,
  isTransportField,
  ReceivedRequest,
  statusHasBody,
} from "./http_exchange.ts";
import { ErrorCode } from "./http2_frames.ts";
import type { Http2RequestHead } from "./http2_request_head.ts";
import type { Http2Stream } from "./http2_stream.ts";
import { type MemoryAccount, ReceiveBuffer } from "./receive_buffer.ts";
import type { StreamSink } from "./stream_sink.ts";
import type { HttpResponse } from "./transport.ts";

const EMPTY = new Uint8Array(0);
const INTERNAL_ERROR = new HttpError(500, "Request could not be handled: internal error");

/** One HTTP request on an HTTP/2 stream: collects the body, then lets the handler answer. */
export class Http2Exchange implements StreamSink {
  readonly #stream: Http2Stream;
  readonly #head: Http2RequestHead;
  readonly #context: TransportContext;
  readonly #account: MemoryAccount;
  #body: ReceiveBuffer | undefined;
  #isReadingDirectly = false;
  /** The body was handed to the handler, or nobody wants it. */
  #bodyIsClosed = false;
  #arrivedMs = 0;
  #request: ReceivedRequest | undefined;
  #onGone: (() => void) | undefined;

  constructor(
    stream: Http2Stream,
    { head, context, account }: {
      head: Http2RequestHead;
      context: TransportContext;
      account: MemoryAccount;
    },
  ) {
    this.#stream = stream;
    this.#head = head;
    this.#context = context;
    this.#account = account;
  }

  get isReceiving(): boolean {
    return !this.#bodyIsClosed;
  }

  /** Looks at the head alone. */
  begin(): void {
    const { maxBodyBytes } = this.#context.limits;
    const early = this.#context.http.admit?.(this.#head);
    this.#arrivedMs = this.#context.http.arrivalTime?.() ?? 0;
    if (early !== undefined) {
      this.#bodyIsClosed = true;
      void this.#respond(early, undefined);
    } else if (this.#head.contentLength > maxBodyBytes) {
      this.#refuse(bodyTooLarge(maxBodyBytes, this.#head.contentLength));
    }
  }

  data(bytes: Uint8Array, start: number, end: number): void {
    if (this.#bodyIsClosed || !this.#openBody(end - start)) return;
    if (!this.#body!.append(bytes, start, end)) this.#refuse(noBodyMemory());
  }

  directRoom(wanted: number): Uint8Array | undefined {
    if (this.#bodyIsClosed || !this.#openBody(wanted)) return undefined;
    const room = this.#body!.reserve(wanted);
    this.#isReadingDirectly = room !== undefined;
    return room;
  }

  directFilled(count: number): void {
    this.#isReadingDirectly = false;
    if (this.#bodyIsClosed) this.#releaseBody();
    else if (!this.#body!.advance(count)) this.#refuse(noBodyMemory());
  }

  end(): void {
    if (this.#bodyIsClosed) return;
    this.#bodyIsClosed = true;
    const body = this.#body;
    this.#body = undefined;
    void this.#handle(body);
  }

  reset(): void {
    this.dispose();
    this.#request?.abort();
    this.#onGone?.();
  }

  dispose(): void {
    this.#bodyIsClosed = true;
    if (!this.#isReadingDirectly) this.#releaseBody();
  }

  /** Makes sure that there is a buffer, and that the body stays within its limit. */
  #openBody(nextBytes: number): boolean {
    const { maxBodyBytes } = this.#context.limits;
    if ((this.#body?.filled ?? 0) + nextBytes > maxBodyBytes) {
      this.#refuse(bodyTooLarge(maxBodyBytes));
      return false;
    }
    this.#body ??= ReceiveBuffer.tryCreate(this.#account, this.#head.contentLength);
    if (this.#body !== undefined) return true;
    this.#refuse(noBodyMemory());
    return false;
  }

  async #handle(body: ReceiveBuffer | undefined): Promise<void> {
    const request = new ReceivedRequest(this.#head, body?.bytes ?? EMPTY, this.#arrivedMs);
    this.#request = request;
    let response: HttpResponse;
    try {
      const answer = this.#context.http.handle(request);
      response = answer instanceof Promise ? await answer : answer;
    } catch (error) {
      this.#context.reportError(error);
      response = errorResponse(INTERNAL_ERROR);
    }
    await this.#respond(response, body);
  }

  #refuse(error: HttpError): void {
    this.dispose();
    void this.#respond(errorResponse(error), undefined);
  }

  /** Sends a response; the request's body is given back when the last byte is written. Never rejects. */
  async #respond(response: HttpResponse, body: ReceiveBuffer | undefined): Promise<void> {
    let isDone = false;
    const done = () => {
      if (isDone) return;
      isDone = true;
      this.#request = undefined;
      body?.release();
      response.onSent?.();
    };
    try {
      await this.#send(response, done);
    } catch (error) {
      if (!this.#stream.closed) {
        this.#context.reportError(error);
        if (this.#stream.headersSent) this.#stream.reset(ErrorCode.INTERNAL_ERROR);
        else await this.#send(errorResponse(INTERNAL_ERROR), () => {});
      }
      this.#stream.afterWrite(done);
    }
  }

  async #send(response: HttpResponse, done: () => void): Promise<void> {
    const stream = this.#stream;
    const { body, trailers } = response;
    const parts = body === undefined ? [] : isParts(body) ? body : undefined;
    const isBodiless = this.#head.method === "HEAD" || !statusHasBody(response.status);
    stream.sendHeaders(responseFields(response, parts));
    if (parts === undefined) {
      if (!isBodiless) await this.#streamBody(body as AsyncIterable<Uint8Array>);
      else void (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]().return?.();
    }
    const last = isBodiless ? [] : parts ?? [];
    if (trailers === undefined || trailers.length === 0) return stream.sendLast(last, done);
    stream.send(last, done);
    stream.finish(trailers.map(([name, value]) => [name.toLowerCase(), value] as const));
  }

  async #streamBody(body: AsyncIterable<Uint8Array>): Promise<void> {
    const stream = this.#stream;
    const iterator = body[Symbol.asyncIterator]();
    const gone = new Promise<undefined>((resolve) => this.#onGone = () => resolve(undefined));
    let isComplete = false;
    try {
      for (;;) {
        const next = iterator.next();
        const step = stream.closed ? undefined : await Promise.race([next, gone]);
        if (step === undefined) {
          next.catch(() => {});
          throw new Error("Stream is closed");
        }
        if (step.done === true) break;
        if (stream.send([step.value])) continue;
        await Promise.race([new Promise<void>((resolve) => stream.onDrain = resolve), gone]);
      }
      isComplete = true;
    } finally {
      this.#onGone = undefined;
      if (!isComplete) Promise.resolve(iterator.return?.()).catch(() => {});
    }
  }

  #releaseBody(): void {
    const body = this.#body;
    this.#body = undefined;
    body?.release();
  }
}

function errorResponse(error: HttpError): HttpResponse {
  return { status: error.status, headers: ERROR_FIELDS, body: [formatErrorBody(error.message)] };
}

function responseFields(
  response: HttpResponse,
  parts: readonly Uint8Array[] | undefined,
): (readonly [string, string])[] {
  const fields: (readonly [string, string])[] = [[":status", String(response.status)]];
  for (const [name, value] of response.headers ?? []) {
    checkResponseField(name, value);
    if (!isTransportField(name)) fields.push([name.toLowerCase(), value]);
  }
  if (parts !== undefined && response.trailers === undefined && statusHasBody(response.status)) {
    let byteSize = 0;
    for (const part of parts) byteSize += part.length;
    fields.push(["content-length", String(byteSize)]);
  }
  return fields;
}

function isParts(
  body: readonly Uint8Array[] | AsyncIterable<Uint8Array>,
): body is readonly Uint8Array[] {
  return Array.isArray(body);
}
