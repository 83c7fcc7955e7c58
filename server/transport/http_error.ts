/** A request that HTTP itself refuses; answered with `status` and a JSON body, then the connection ends. */
export class HttpError extends Error {
  override readonly name = "HttpError";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The peer ended the connection inside a request: nobody is left to answer. */
export class PeerGoneError extends Error {
  override readonly name = "PeerGoneError";
}

/** Body of every error answer of the transport. */
export function formatErrorBody(message: string): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({ error: message }));
}

/** Fields of every error answer of the transport. */
export const ERROR_FIELDS: readonly (readonly [string, string])[] = Object.freeze([
  ["content-type", "application/json"] as const,
]);

/** Text for a body over the limit. */
export function bodyTooLarge(maxBodyBytes: number, byteSize?: number): HttpError {
  const size = byteSize === undefined ? "" : ` of ${byteSize} bytes`;
  return new HttpError(
    413,
    `Request body${size} exceeds the maximum of ${maxBodyBytes} bytes`,
  );
}

/** Text for a body for which the byte quota has no room. */
export function noBodyMemory(): HttpError {
  return new HttpError(
    503,
    "Request body cannot be held: the memory for request bodies is used up",
  );
}
