import { Code, ConnectError } from "@connectrpc/connect";
import { ServerError, type StatusCode } from "../../proto/status.ts";

/** gRPC status numbers of the codes that operations fail with (grpc.md §1.1). */
const GRPC_CODES: Readonly<Record<StatusCode, Code>> = {
  UNKNOWN: Code.Unknown,
  INTERNAL: Code.Internal,
  NOT_FOUND: Code.NotFound,
  INVALID_ARG: Code.InvalidArgument,
  UNAVAILABLE: Code.Unavailable,
  UNSUPPORTED: Code.Unimplemented,
  ALREADY_EXISTS: Code.AlreadyExists,
  CANCELLED: Code.Canceled,
};

type HeaderBlock = readonly (readonly [string, string])[];

/** Header block of every answer that is not compressed. */
export const RESPONSE_HEADERS: HeaderBlock = Object.freeze([
  ["content-type", "application/grpc"] as const,
]);

/** Trailer block of every call that succeeded. */
export const OK_TRAILERS: HeaderBlock = Object.freeze([["grpc-status", "0"] as const]);

/** Encodings of messages that are understood. */
export const ACCEPTED_ENCODINGS = "identity, deflate, gzip";

// gRPC clients refuse metadata of more than 8 KiB by default; the rest of the block needs a little of it.
const MAX_MESSAGE_BYTES = 6000;
const HEX = "0123456789ABCDEF";

/** What anything thrown means to a gRPC client: conditions of the protocol itself travel as ConnectError. */
export function toConnectError(reason: unknown): ConnectError {
  if (reason instanceof ConnectError) return reason;
  const error = ServerError.from(reason);
  return new ConnectError(error.message, GRPC_CODES[error.code], undefined, undefined, error);
}

/** The trailers of a call that failed. */
export function errorTrailers(reason: unknown): HeaderBlock {
  const error = toConnectError(reason);
  const trailers: [string, string][] = [["grpc-status", String(error.code)]];
  if (error.rawMessage !== "") trailers.push(["grpc-message", percentEncode(error.rawMessage)]);
  error.metadata.forEach((value, name) => trailers.push([name, value]));
  return trailers;
}

/** `grpc-message` encoding; what would not fit in the metadata of a client is cut off and marked with dots. */
export function percentEncode(message: string): string {
  let text = "";
  for (const byte of new TextEncoder().encode(message)) {
    if (byte >= 0x20 && byte <= 0x7e && byte !== 0x25) text += String.fromCharCode(byte);
    else text += `%${HEX[byte >> 4]}${HEX[byte & 15]}`;
    if (text.length > MAX_MESSAGE_BYTES) return `${cutCharacter(text)}...`;
  }
  return text;
}

/** Takes the last character off if it is not ASCII: it may be incomplete. */
function cutCharacter(text: string): string {
  return text.replace(/%[C-F][0-9A-F](?:%[89AB][0-9A-F])*$/, "");
}
