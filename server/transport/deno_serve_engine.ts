import { HeaderList } from "./header_list.ts";
import {
  bodyTooLarge,
  ERROR_FIELDS,
  formatErrorBody,
  HttpError,
  noBodyMemory,
} from "./http_error.ts";
import { isTransportField, ReceivedRequest, statusHasBody } from "./http_exchange.ts";
import { DEFAULT_LIMITS, type TransportLimits } from "./limits.ts";
import { type Listener, LONGEST_TIMEOUT_MS } from "./listener.ts";
import type { ListenerOptions } from "./listener_options.ts";
import { BufferPool } from "./buffer_pool.ts";
import { MemoryAccount, ReceiveBuffer } from "./receive_buffer.ts";
import { removeSocketFile, removeStaleSocket } from "./socket_file.ts";
import type { HttpHandler, HttpResponse, RequestHead } from "./transport.ts";

const EMPTY = new Uint8Array(0);

/**
 * Serves an HTTP handler with `Deno.serve` instead of the project's own protocol code. Not there: gRPC and trailers,
 * mutual TLS, and the limits of `TransportLimits` other than `maxBodyBytes` and the memory quota.
 */
export async function openDenoServeListener(
  options: ListenerOptions,
  handler: HttpHandler,
): Promise<Listener> {
  if (options.tls?.clientCa !== undefined) {
    throw new TypeError("Deno.serve cannot ask for client certificates; use the own HTTP engine");
  }
  if (options.path !== undefined) await removeStaleSocket(options.path);
  return new DenoServeListener(options, handler);
}

class DenoServeListener implements Listener {
  readonly address: string;
  readonly port: number;
  readonly #handler: HttpHandler;
  readonly #limits: TransportLimits;
  readonly #pool: BufferPool;
  readonly #reportError: (error: unknown) => void;
  readonly #server: Deno.HttpServer;
  readonly #abort = new AbortController();
  #socketPath: string | undefined;
  #isEnded = false;
  #inFlight = 0;

  constructor(options: ListenerOptions, handler: HttpHandler) {
    this.#handler = handler;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#pool = options.pool ?? new BufferPool();
    this.#reportError = options.onError ?? (() => {});
    this.#server = this.#serve(options);
    this.#socketPath = options.path;
    const { addr } = this.#server;
    this.address = addr.transport === "tcp" ? addr.hostname : options.path ?? "";
    this.port = addr.transport === "tcp" ? addr.port : 0;
    if (options.tls !== undefined) options.setListenerNoDelay?.(this.port);
  }

  /** Requests in progress: the engine does not tell its connections. */
  get connectionCount(): number {
    return this.#inFlight;
  }

  async drain(timeoutMs: number): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<false>((resolve) =>
      timer = setTimeout(() => resolve(false), Math.min(timeoutMs, LONGEST_TIMEOUT_MS))
    );
    const ended = await Promise.race([this.#server.shutdown().then(() => true), late]);
    clearTimeout(timer);
    if (ended) this.#isEnded = true;
    this.close();
    return ended;
  }

  close(): void {
    // The signal of a server that has shut down is not to be touched: Deno would close it once more.
    if (!this.#isEnded) this.#abort.abort();
    this.#isEnded = true;
    const path = this.#socketPath;
    this.#socketPath = undefined;
    if (path !== undefined) removeSocketFile(path);
  }

  #serve(options: ListenerOptions): Deno.HttpServer {
    const { signal } = this.#abort;
    const common = { signal, onListen: () => {}, onError: (error: unknown) => this.#failed(error) };
    const handle = (request: Request) => this.#handle(request);
    if (options.path !== undefined) return Deno.serve({ ...common, path: options.path }, handle);
    const { address: hostname, port, tls } = options;
    const reusePort = options.reusePort === true ? { reusePort: true } : {};
    if (tls === undefined) return Deno.serve({ ...common, ...reusePort, hostname, port }, handle);
    const { cert, key } = tls;
    return Deno.serve({ ...common, ...reusePort, hostname, port, cert, key }, handle);
  }

  #failed(error: unknown): Response {
    this.#reportError(error);
    return errorResponse(new HttpError(500, "Request could not be handled: internal error"));
  }

  async #handle(request: Request): Promise<Response> {
    this.#inFlight++;
    let body: ReceiveBuffer | undefined;
    let response: HttpResponse | undefined;
    try {
      const head = readHead(request);
      response = this.#handler.admit?.(head);
      if (response === undefined) {
        const arrivedMs = this.#handler.arrivalTime?.() ?? 0;
        body = request.body === null ? undefined : await this.#readBody(request.body);
        const received = new ReceivedRequest(head, body?.bytes ?? EMPTY, arrivedMs);
        request.signal.addEventListener("abort", () => received.abort());
        response = await this.#handler.handle(received);
      }
      return toResponse(response, { method: head.method, done: () => this.#done(response, body) });
    } catch (error) {
      this.#done(response, body);
      if (error instanceof HttpError) return errorResponse(error);
      throw error;
    }
  }

  #done(response: HttpResponse | undefined, body: ReceiveBuffer | undefined): void {
    this.#inFlight--;
    body?.release();
    response?.onSent?.();
  }

  async #readBody(stream: ReadableStream<Uint8Array>): Promise<ReceiveBuffer> {
    const { maxBodyBytes } = this.#limits;
    const buffer = ReceiveBuffer.tryCreate(
      new MemoryAccount(this.#pool, maxBodyBytes + 65_536),
      -1,
    );
    if (buffer === undefined) throw noBodyMemory();
    try {
      for await (const chunk of stream) {
        if (buffer.filled + chunk.length > maxBodyBytes) throw bodyTooLarge(maxBodyBytes);
        if (!buffer.append(chunk, 0, chunk.length)) throw noBodyMemory();
      }
      return buffer;
    } catch (error) {
      buffer.release();
      // Whatever else goes wrong with a body is of the client's making: cut off, malformed, or it has gone.
      throw error instanceof HttpError ? error : new HttpError(400, "Request body is incomplete");
    }
  }
}

function readHead(request: Request): RequestHead {
  const { url } = request;
  const pathAt = url.indexOf("/", url.indexOf("://") + 3);
  return {
    method: request.method,
    target: pathAt < 0 ? "/" : url.slice(pathAt),
    headers: new HeaderList([...request.headers]),
    httpVersion: "1.1",
  };
}

/** `done` is called when the parts were copied, or the last chunk was taken. */
function toResponse(
  response: HttpResponse,
  { method, done }: { method: string; done: () => void },
): Response {
  const headers = new Headers();
  for (const [name, value] of response.headers ?? []) {
    if (!isTransportField(name)) headers.append(name, value);
  }
  const { body, status } = response;
  const isBodiless = method === "HEAD" || !statusHasBody(status);
  const isWhole = body === undefined || isParts(body);
  if (!isWhole && !isBodiless) {
    return new Response(ReadableStream.from(withEnd(body, done)), { status, headers });
  }
  if (!isWhole) void body[Symbol.asyncIterator]().return?.();
  const bytes = isWhole && body !== undefined && !isBodiless ? joinParts(body) : null;
  const whole = new Response(bytes, { status, headers });
  done();
  return whole;
}

async function* withEnd(
  body: AsyncIterable<Uint8Array>,
  done: () => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } finally {
    done();
  }
}

function joinParts(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

function errorResponse(error: HttpError): Response {
  return toResponse({
    status: error.status,
    headers: ERROR_FIELDS,
    body: [formatErrorBody(error.message)],
  }, { method: "GET", done: () => {} });
}

function isParts(
  body: readonly Uint8Array[] | AsyncIterable<Uint8Array>,
): body is readonly Uint8Array[] {
  return Array.isArray(body);
}
