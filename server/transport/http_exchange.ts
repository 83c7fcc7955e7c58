import { Cancellation } from "./cancellation.ts";
import type { Headers, HttpRequest, RequestHead } from "./transport.ts";

/** The request a handler sees, over any protocol. */
export class ReceivedRequest implements HttpRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: Headers;
  readonly httpVersion: "1.0" | "1.1" | "2";
  readonly body: Uint8Array;
  readonly arrivedMs: number;
  readonly signal = new Cancellation();

  constructor(head: RequestHead, body: Uint8Array, arrivedMs: number) {
    this.method = head.method;
    this.target = head.target;
    this.headers = head.headers;
    this.httpVersion = head.httpVersion;
    this.body = body;
    this.arrivedMs = arrivedMs;
  }

  /** Says that nobody waits for the answer any more. */
  abort(): void {
    this.signal.abort();
  }
}

/** Whether a response may have a body at all. */
export function statusHasBody(status: number): boolean {
  return status >= 200 && status !== 204 && status !== 304;
}

/** Fields that the transport itself writes, or that HTTP/2 forbids. */
export function isTransportField(name: string): boolean {
  switch (name.length) {
    case 7:
      return name.toLowerCase() === "upgrade";
    case 10:
      return /^(connection|keep-alive)$/i.test(name);
    case 14:
      return name.toLowerCase() === "content-length";
    case 16:
      return name.toLowerCase() === "proxy-connection";
    case 17:
      return name.toLowerCase() === "transfer-encoding";
    default:
      return false;
  }
}

/** A handler gave a response field that would break out of its line. */
export class ResponseFieldError extends TypeError {
  override readonly name = "ResponseFieldError";
}

/** Throws when a field of a handler would break out of its line. */
export function checkResponseField(name: string, value: string): void {
  if (name === "" || /[\0-\x20\x7f:]/.test(name) || /[\0\r\n]/.test(value)) {
    throw new ResponseFieldError(`Response header field ${JSON.stringify(name)} is malformed`);
  }
}
