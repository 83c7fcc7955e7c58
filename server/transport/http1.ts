import {
  closeQuietly,
  type Connection,
  lingerAndClose,
  type ProtocolConnection,
  type TransportContext,
} from "./connection.ts";
import { ERROR_FIELDS, formatErrorBody, HttpError } from "./http_error.ts";
import { ReceivedRequest, ResponseFieldError, statusHasBody } from "./http_exchange.ts";
import { Http1BodyReader } from "./http1_body.ts";
import { Http1Input } from "./http1_input.ts";
import { findHeadEnd, type ParsedHead, parseHead } from "./http1_parser.ts";
import { Http1Writer, type ResponseFraming } from "./http1_writer.ts";
import { MemoryAccount, type ReceiveBuffer } from "./receive_buffer.ts";
import type { HttpResponse } from "./transport.ts";

const CR = 13;
const LF = 10;
const EMPTY = new Uint8Array(0);
/** A refused body up to this size is read and dropped, so that the connection can be kept. */
const MAX_DROPPED_BYTES = 1_048_576;

type Phase = "first" | "idle" | "head" | "body" | "handling" | "closing";

/** One HTTP/1.1 (or 1.0) connection: requests one after the other, each answered before the next is parsed. */
export class Http1Connection implements ProtocolConnection {
  readonly #connection: Connection;
  readonly #context: TransportContext;
  readonly #input: Http1Input;
  readonly #writer: Http1Writer;
  readonly #bodies: Http1BodyReader;
  #phase: Phase = "first";
  #phaseSince: number;
  #draining = false;
  #closed = false;
  /** The last head; clients repeat theirs byte for byte. */
  #lastHead: ParsedHead | undefined;
  #request: ReceivedRequest | undefined;
  #isWatching = false;
  #graceTimer: ReturnType<typeof setTimeout> | undefined;
  #onGone: (() => void) | undefined;

  constructor(connection: Connection, context: TransportContext) {
    const { limits, pool } = context;
    this.#connection = connection;
    this.#context = context;
    this.#input = new Http1Input(connection, limits.maxHeadBytes);
    this.#writer = new Http1Writer(connection, context);
    const account = new MemoryAccount(pool, limits.maxConnectionBufferBytes);
    this.#bodies = new Http1BodyReader(this.#input, account, limits);
    this.#phaseSince = context.now;
  }

  async run(first: Uint8Array): Promise<void> {
    this.#input.prepend(first);
    try {
      while (await this.#serveOne());
    } catch (error) {
      if (error instanceof HttpError) await this.#refuse(error);
    }
    this.close();
  }

  tick(): void {
    if (this.#closed) return;
    if (this.#writer.isStalled) return this.close();
    const { limits, now } = this.#context;
    const elapsedMs = now - this.#phaseSince;
    switch (this.#phase) {
      case "first":
        if (elapsedMs > limits.handshakeTimeoutMs) this.#timeOut();
        return;
      case "idle":
        if (elapsedMs > limits.idleTimeoutMs) this.close();
        return;
      case "head":
        if (elapsedMs > limits.headerTimeoutMs) this.#timeOut();
        return;
      case "body": {
        const paidMs = this.#bodies.received * 1000 / limits.minBytesPerSecond;
        if (elapsedMs > limits.bodyTimeoutMs + paidMs) this.#timeOut();
      }
    }
  }

  drain(): void {
    this.#draining = true;
    const isIdle = this.#phase === "first" || this.#phase === "idle";
    if (isIdle && this.#input.available === 0) this.close();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#peerGone();
    closeQuietly(this.#connection);
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#phaseSince = this.#context.now;
  }

  /** One request and its answer; false when the connection has to end. */
  async #serveOne(): Promise<boolean> {
    const head = this.#bufferedHead() ?? await this.#readHead();
    if (head === undefined) return false;
    const early = this.#context.http.admit?.(head);
    if (early !== undefined) return await this.#answerEarly(head, early);
    const arrivedMs = this.#context.http.arrivalTime?.() ?? 0;
    const reading = head.contentLength === 0 ? undefined : this.#readBody(head);
    const body = reading instanceof Promise ? await reading : reading;
    const request = new ReceivedRequest(head, body?.bytes ?? EMPTY, arrivedMs);
    this.#request = request;
    this.#enter("handling");
    const response = await this.#handle(request);
    const framing = this.#frame(head, head.keepAlive);
    try {
      return await this.#respond(response, framing);
    } finally {
      this.#request = undefined;
      clearTimeout(this.#graceTimer);
      body?.release();
      this.#callOnSent(response);
      this.#enter("idle");
    }
  }

  /** A complete head that is already there: the usual case, without a turn of the event loop. */
  #bufferedHead(): ParsedHead | undefined {
    const input = this.#input;
    this.#skipEmptyLines();
    if (input.available === 0) return undefined;
    const repeated = this.#repeatedHead();
    if (repeated !== undefined) return repeated;
    const { buffer, start, end } = input;
    const headEnd = findHeadEnd(buffer, { start, end, from: start });
    return headEnd < 0 ? undefined : this.#takeHead(headEnd);
  }

  /** The last head, when the same bytes came again. */
  #repeatedHead(): ParsedHead | undefined {
    const { buffer, start, end } = this.#input;
    const last = this.#lastHead;
    if (last === undefined || !startsWith(buffer, { start, end }, last.bytes)) return undefined;
    this.#input.consume(last.bytes.length);
    return last;
  }

  async #readHead(): Promise<ParsedHead | undefined> {
    const input = this.#input;
    let scanned = 0;
    for (;;) {
      if (input.available > 0 && (this.#phase === "idle" || this.#phase === "first")) {
        this.#enter("head");
      }
      if (this.#draining && input.available === 0) return undefined;
      const reading = input.fill();
      if (reading === undefined) {
        throw new HttpError(431, `Request head exceeds ${this.#context.limits.maxHeadBytes} bytes`);
      }
      if (await reading === 0) return undefined;
      this.#skipEmptyLines();
      const repeated = scanned === 0 ? this.#repeatedHead() : undefined;
      if (repeated !== undefined) return repeated;
      const { buffer, start, end } = input;
      const headEnd = findHeadEnd(buffer, { start, end, from: start + scanned });
      if (headEnd >= 0) return this.#takeHead(headEnd);
      scanned = Math.max(0, end - start - 1);
    }
  }

  #takeHead(headEnd: number): ParsedHead {
    const { buffer, start } = this.#input;
    if (headEnd - start > this.#context.limits.maxHeadBytes) {
      throw new HttpError(431, `Request head exceeds ${this.#context.limits.maxHeadBytes} bytes`);
    }
    const head = parseHead(buffer.slice(start, headEnd), this.#context.limits.maxHeaderCount);
    this.#input.consume(headEnd - start);
    this.#lastHead = head;
    return head;
  }

  /** Empty lines in front of a request are leftovers of careless clients. */
  #skipEmptyLines(): void {
    const input = this.#input;
    while (
      input.available >= 2 && input.buffer[input.start] === CR &&
      input.buffer[input.start + 1] === LF
    ) input.consume(2);
  }

  #readBody(
    { contentLength, expectsContinue }: ParsedHead,
  ): ReceiveBuffer | Promise<ReceiveBuffer> {
    this.#bodies.check(contentLength);
    this.#enter("body");
    const read = () =>
      contentLength < 0 ? this.#bodies.readChunked() : this.#bodies.readSized(contentLength);
    if (!expectsContinue || this.#input.available > 0) return read();
    return this.#writer.writeContinue().then(read);
  }

  // ---- answer

  #handle(request: ReceivedRequest): HttpResponse | Promise<HttpResponse> {
    try {
      const answer = this.#context.http.handle(request);
      if (!(answer instanceof Promise)) return answer;
      this.#watch();
      return answer.catch(this.#onFault);
    } catch (error) {
      return this.#onFault(error);
    }
  }

  readonly #onFault = (error: unknown): HttpResponse => {
    this.#context.reportError(error);
    return internalError();
  };

  /** Answers from the head alone; the body is dropped when that is cheap. */
  async #answerEarly(head: ParsedHead, response: HttpResponse): Promise<boolean> {
    const droppable = head.contentLength >= 0 && head.contentLength <= MAX_DROPPED_BYTES &&
      !head.expectsContinue;
    this.#enter("handling");
    try {
      const keep = await this.#respond(
        response,
        this.#frame(head, head.keepAlive && droppable),
      );
      if (keep && head.contentLength > 0) {
        this.#enter("body");
        (await this.#bodies.readSized(head.contentLength)).release();
      }
      if (!droppable) await lingerAndClose(this.#connection, this.#context.limits.lingerMs);
      this.#enter("idle");
      return keep;
    } finally {
      this.#callOnSent(response);
    }
  }

  #frame(head: ParsedHead, keepAlive: boolean): ResponseFraming {
    const { method, httpVersion } = head;
    return { isHead: method === "HEAD", httpVersion, keepAlive: keepAlive && !this.#draining };
  }

  /**
   * Writes a response; true when the connection can serve another request. One with a field that must not be sent is
   * replaced, before anything of it was written.
   */
  async #respond(response: HttpResponse, framing: ResponseFraming): Promise<boolean> {
    const { body } = response;
    try {
      if (body !== undefined && !isParts(body)) {
        const isDelimited = framing.httpVersion === "1.1";
        const streamFraming = { ...framing, keepAlive: framing.keepAlive && isDelimited };
        await this.#stream(body, { response, framing: streamFraming });
        return streamFraming.keepAlive;
      }
      await this.#writer.writeWhole(response, body ?? [], framing);
    } catch (error) {
      if (!(error instanceof ResponseFieldError)) throw error;
      this.#context.reportError(error);
      const replacement = internalError();
      await this.#writer.writeWhole(replacement, replacement.body, framing);
    }
    return framing.keepAlive;
  }

  async #stream(
    body: AsyncIterable<Uint8Array>,
    { response, framing }: { response: HttpResponse; framing: ResponseFraming },
  ): Promise<void> {
    const iterator = body[Symbol.asyncIterator]();
    let isComplete = false;
    const gone = new Promise<undefined>((resolve) => this.#onGone = () => resolve(undefined));
    try {
      await this.#writer.writeStreamHead(response, framing);
      if (!framing.isHead && statusHasBody(response.status)) {
        this.#watch();
        for (;;) {
          const next = iterator.next();
          const step = await Promise.race([next, gone]);
          if (step === undefined) {
            next.catch(() => {});
            throw new Error("Peer is gone");
          }
          if (step.done === true) break;
          await this.#writer.writeChunk(step.value, framing);
        }
        isComplete = true;
        await this.#writer.writeLastChunk(framing);
      }
    } finally {
      this.#onGone = undefined;
      if (!isComplete) {
        this.#request?.abort();
        Promise.resolve(iterator.return?.()).catch(() => {});
      }
    }
  }

  #callOnSent(response: HttpResponse): void {
    try {
      response.onSent?.();
    } catch (error) {
      this.#context.reportError(error);
    }
  }

  // ---- ends

  /** Reads on while a handler works, so that a disconnect is seen; what comes is the next request. */
  #watch(): void {
    if (this.#isWatching || this.#request === undefined) return;
    if (this.#input.ended) return this.#peerEnded();
    if (!this.#input.canWatch) return;
    this.#isWatching = true;
    this.#input.fill()?.then(this.#onInput, this.#onBroken);
  }

  readonly #onInput = (count: number): void => {
    this.#isWatching = false;
    if (count === 0) this.#peerEnded();
    else this.#watch();
  };

  readonly #onBroken = (): void => {
    this.#isWatching = false;
    this.#peerGone();
  };

  /** The end of input may be a half-closed connection that still wants its answer: it gets a moment for that. */
  #peerEnded(): void {
    if (this.#request === undefined) return;
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => this.#peerGone(), this.#context.limits.halfCloseGraceMs);
  }

  #peerGone(): void {
    clearTimeout(this.#graceTimer);
    this.#request?.abort();
    this.#onGone?.();
  }

  #timeOut(): void {
    const hasBytes = this.#phase === "body" || this.#input.available > 0;
    this.#enter("closing");
    if (!hasBytes) return this.close();
    const error = new HttpError(408, "Request did not arrive in time");
    this.#writeError(error).catch(() => {}).finally(() => this.close());
  }

  async #refuse(error: HttpError): Promise<void> {
    this.#enter("closing");
    try {
      await this.#writeError(error);
      await lingerAndClose(this.#connection, this.#context.limits.lingerMs);
    } catch {
      // The peer did not wait for its answer.
    }
  }

  #writeError(error: HttpError): Promise<void> {
    const response = { status: error.status, headers: ERROR_FIELDS };
    return this.#writer.writeWhole(response, [formatErrorBody(error.message)], {
      isHead: false,
      httpVersion: "1.1",
      keepAlive: false,
    });
  }
}

function internalError() {
  return {
    status: 500,
    headers: ERROR_FIELDS,
    body: [formatErrorBody("Request could not be handled: internal error")],
  };
}

function isParts(
  body: readonly Uint8Array[] | AsyncIterable<Uint8Array>,
): body is readonly Uint8Array[] {
  return Array.isArray(body);
}

function startsWith(
  buffer: Uint8Array,
  { start, end }: { start: number; end: number },
  prefix: Uint8Array,
): boolean {
  if (end - start < prefix.length) return false;
  for (let at = 0; at < prefix.length; at++) {
    if (buffer[start + at] !== prefix[at]) return false;
  }
  return true;
}
