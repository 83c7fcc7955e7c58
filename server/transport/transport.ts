/** Header fields of one message in order of arrival. */
export interface Headers {
  /** First value of a field; undefined when absent. Name in lower case. */
  get(name: string): string | undefined;
  /**
   * Every (name, value) pair, repeated fields apart. Over HTTP/1.1 names are spelled as they were sent, and white space
   * behind values is there.
   */
  entries(): Iterable<readonly [string, string]>;
}

/** The head of an HTTP request, before its body was read. */
export interface RequestHead {
  readonly method: string;
  /** Request target as received: path and query, not decoded. */
  readonly target: string;
  readonly headers: Headers;
  readonly httpVersion: "1.0" | "1.1" | "2";
}

/** Tells that the peer has gone: the part of an `AbortSignal` that handlers use. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** One complete HTTP request. `body` lies in a pooled buffer that the transport takes back after the response was written. */
export interface HttpRequest extends RequestHead {
  readonly body: Uint8Array;
  /** Aborted when the peer closed the connection or reset the stream. */
  readonly signal: CancelSignal;
  /** What `HttpHandler.arrivalTime` said when the head was there; 0 without it. */
  readonly arrivedMs: number;
}

/** A response. `body` parts are written by reference, without a copy when large. */
export interface HttpResponse {
  readonly status: number;
  readonly headers?: readonly (readonly [string, string])[];
  /** Parts of the body, or chunks as they come (chunked on HTTP/1.1). Absent = empty body. */
  readonly body?: readonly Uint8Array[] | AsyncIterable<Uint8Array>;
  /** Trailer fields, HTTP/2 only. */
  readonly trailers?: readonly (readonly [string, string])[];
  /** Called exactly once, when the response was written or the connection is gone. */
  readonly onSent?: () => void;
}

/** What a listener serves over HTTP/1.1 and over HTTP/2 streams that are not gRPC. */
export interface HttpHandler {
  /** May answer from the head alone (404, 413, …); the body is then drained or the connection closed. */
  admit?(head: RequestHead): HttpResponse | undefined;
  /** Asked when the head of a request is there, before its body; the answer comes back with the request. */
  arrivalTime?(): number;
  handle(request: HttpRequest): HttpResponse | Promise<HttpResponse>;
}

/** Why a message of an RPC stream was not taken. Nothing more is received on that stream. */
export interface MessageRefusal {
  /**
   * `too_large`: longer than `RpcHandler.maxMessageBytes`; `no_memory`: the byte quota of the connection or of the
   * process is used up; `malformed`: bad flag byte, or the peer ended the stream inside a message.
   */
  readonly reason: "too_large" | "no_memory" | "malformed";
  /** Length announced by the message's prefix. */
  readonly byteSize: number;
  /** What went wrong, fit for a status message. */
  readonly message: string;
}

/** One HTTP/2 stream that carries `application/grpc`. All callbacks are set by the handler inside `open`. */
export interface RpcStream {
  readonly path: string;
  readonly headers: Headers;
  /**
   * A complete length-prefixed message, still compressed if flagged; lies in a pooled buffer which belongs to the
   * receiver until it calls `release()`. The sender is held back while `pause()` is in force.
   */
  onMessage: (message: Uint8Array, compressed: boolean, release: () => void) => void;
  /**
   * A message was refused; the handler answers with `finish`. When not set, the transport finishes the stream itself
   * with status RESOURCE_EXHAUSTED (`too_large`, `no_memory`) or INTERNAL.
   */
  onRefused?: ((refusal: MessageRefusal) => void) | undefined;
  /** The peer half-closed. */
  onEnd: () => void;
  /** The stream was reset or the connection lost; nothing more can be sent. */
  onReset: () => void;
  /** The queue of outgoing bytes is empty again after `send` returned false. */
  onDrain: () => void;
  /** Stops granting flow-control window to the peer until `resume()`. */
  pause(): void;
  resume(): void;
  /**
   * Response header block; once, before the first message. `content-type` etc. are given by the caller, `:status` is
   * 200 unless given first. A list frozen with `Object.freeze` is encoded once and never again (also in `finish`).
   */
  sendHeaders(fields: readonly (readonly [string, string])[]): void;
  /**
   * Queues one message as parts (the 5-byte prefix included by the caller), large parts by reference.
   * `onSent` is called exactly once when the bytes were written or the stream died. False: wait for `onDrain`.
   */
  send(parts: readonly Uint8Array[], onSent?: () => void): boolean;
  /**
   * Ends the stream with trailers, behind all queued messages (or, without sent headers, with one header block:
   * trailers-only; `:status` 200 is added).
   */
  finish(trailers: readonly (readonly [string, string])[]): void;
  /** RST_STREAM with an HTTP/2 error code. */
  reset(code: number): void;
  readonly closed: boolean;
}

/** What a listener does with `application/grpc` streams. */
export interface RpcHandler {
  open(stream: RpcStream): void;
  /** Largest message accepted, bytes; longer ones are refused when their prefix arrives. */
  readonly maxMessageBytes: number;
}
