import { joinParts } from "../../proto/join_parts.ts";
import type { Headers, RpcStream } from "../transport/transport.ts";

type HeaderBlock = readonly (readonly [string, string])[];

/** An RPC stream without sockets, for tests: records what the handler does and plays the client. */
export class MemoryStream implements RpcStream {
  readonly path: string;
  readonly headers: Headers;
  onMessage: RpcStream["onMessage"] = () => {};
  onEnd: () => void = () => {};
  onReset: () => void = () => {};
  onDrain: () => void = () => {};
  /** Messages as the handler sent them, prefix included. */
  readonly sent: Uint8Array[] = [];
  readonly sentParts: (readonly Uint8Array[])[] = [];
  responseHeaders: HeaderBlock | undefined;
  trailers: Readonly<Record<string, string>> | undefined;
  paused = false;
  closed = false;
  resetCode: number | undefined;
  /** Messages whose buffer the handler has not given back. */
  unreleased = 0;
  /** With false, `onSent` waits for `flush()` and `send` answers false. */
  writable = true;
  readonly #unsent: (() => void)[] = [];
  #ended: (() => void) | undefined;

  constructor(path: string, headers: Readonly<Record<string, string>> = {}) {
    this.path = path;
    const fields = Object.entries(headers);
    this.headers = {
      get: (name) => fields.find(([key]) => key === name)?.[1],
      entries: () => fields,
    };
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  sendHeaders(fields: HeaderBlock): void {
    if (this.responseHeaders !== undefined) throw new TypeError("Headers were sent twice");
    this.responseHeaders = fields;
  }

  send(parts: readonly Uint8Array[], onSent?: () => void): boolean {
    if (this.trailers !== undefined) throw new TypeError("Message after the end of the stream");
    if (this.responseHeaders === undefined) throw new TypeError("Message before the headers");
    this.sentParts.push(parts);
    this.sent.push(joinParts(parts));
    if (this.writable) onSent?.();
    else if (onSent !== undefined) this.#unsent.push(onSent);
    return this.writable;
  }

  finish(trailers: HeaderBlock): void {
    if (this.trailers !== undefined) throw new TypeError("Stream was finished twice");
    this.trailers = Object.fromEntries(trailers);
    this.closed = true;
    this.#ended?.();
  }

  reset(code: number): void {
    this.resetCode = code;
    this.closed = true;
  }

  /** Plays a client that reads everything that was held back. */
  flush(): void {
    this.writable = true;
    for (const onSent of this.#unsent.splice(0)) onSent();
    this.onDrain();
  }

  /** Plays a client that sends one message. */
  message(message: Uint8Array, compressed = false): void {
    this.unreleased++;
    let released = false;
    this.onMessage(message, compressed, () => {
      if (released) throw new TypeError("Message was released twice");
      released = true;
      this.unreleased--;
    });
  }

  /** Plays a client that half-closes. */
  end(): void {
    this.onEnd();
  }

  /** Plays a client that has gone. */
  disconnect(): void {
    this.closed = true;
    this.onReset();
    for (const onSent of this.#unsent.splice(0)) onSent();
  }

  /** Resolves when the handler ended the stream. */
  finished(): Promise<Readonly<Record<string, string>>> {
    return new Promise((resolve) => {
      const done = () => resolve(this.trailers!);
      if (this.trailers !== undefined) done();
      else this.#ended = done;
    });
  }
}
