import { checkForwardable } from "../../proto/http_codec_parameters.ts";
import { ServerError } from "../../proto/status.ts";
import type { ApiCategory } from "../core/options_frontend.ts";

/** One `--grpc-restricted-protocol`: the calls of these categories need metadata `triton-grpc-protocol-<key>`. */
export interface RestrictedProtocol {
  readonly categories: readonly ApiCategory[];
  readonly key: string;
  readonly value: string;
}

/** `--grpc-infer-response-compression-level`. */
export type CompressionLevel = "none" | "low" | "medium" | "high";

/** Calls back once after a delay in milliseconds, unless cancelled. */
export type SetTimer = (delayMs: number, callback: () => void) => { cancel(): void };

/** Settings of the gRPC frontend. */
export interface GrpcOptions {
  readonly setTimer: SetTimer;
  /** Largest message accepted, also after decompression. */
  readonly maxMessageBytes: number;
  readonly responseCompressionLevel: CompressionLevel;
  readonly restrictedProtocols: readonly RestrictedProtocol[];
  /** `--grpc-header-forward-pattern`, matched anywhere in a metadata name. */
  readonly headerForwardPattern: RegExp | undefined;
  /** Told of the path of every call before it is served: for the log. */
  readonly onCall?: (path: string) => void;
  /** Requests of one stream that may be in flight, their answers not yet written; more are held back. */
  readonly maxStreamRequests: number;
  /** Request bytes of one stream that may be in flight before further ones are held back. */
  readonly maxStreamBytes: number;
  /** Calls of Health.Watch at a time. */
  readonly maxWatchers: number;
  /** Bytes that decompression may hold for all calls together. */
  readonly maxInflatedBytes: number;
}

/** The defaults; a timer function must be given. */
export const DEFAULT_GRPC_OPTIONS: Omit<GrpcOptions, "setTimer"> = Object.freeze({
  maxMessageBytes: 2147483647,
  responseCompressionLevel: "none",
  restrictedProtocols: [],
  headerForwardPattern: undefined,
  maxStreamRequests: 1024,
  maxStreamBytes: 256 * 1024 * 1024,
  maxWatchers: 1000,
  maxInflatedBytes: 1024 * 1024 * 1024,
});

/** Metadata look-up of any protocol that reaches the service. */
export interface Metadata {
  get(name: string): string | null | undefined;
}

/**
 * Refuses a call of a restricted category that does not carry the key (grpc.md §1.2).
 * @throws ServerError UNAVAILABLE
 */
export function checkRestriction(
  restricted: readonly RestrictedProtocol[],
  category: ApiCategory,
  metadata: Metadata,
): void {
  for (const { categories, key, value } of restricted) {
    if (!categories.includes(category)) continue;
    const name = `triton-grpc-protocol-${key.toLowerCase()}`;
    if (metadata.get(name) === value) continue;
    throw new ServerError(
      "UNAVAILABLE",
      `This protocol is restricted, expecting header 'triton-grpc-protocol-${key}'`,
    );
  }
}

const NO_HEADERS: readonly (readonly [string, string])[] = [];
const PROTOCOL_NAMES = /^(?::|grpc-|te$|host$|content-type$|triton_grpc_error$)|-bin$/;

/**
 * The metadata that become request parameters; those of the protocol itself and binary ones never do.
 * @throws ServerError INVALID_ARG for one whose name is reserved.
 */
export function forwardedHeaders(
  pattern: RegExp | undefined,
  headers: { entries(): Iterable<readonly [string, string]> },
): readonly (readonly [string, string])[] {
  if (pattern === undefined) return NO_HEADERS;
  const forwarded: (readonly [string, string])[] = [];
  for (const header of headers.entries()) {
    const [name] = header;
    if (PROTOCOL_NAMES.test(name) || !pattern.test(name)) continue;
    checkForwardable(name);
    forwarded.push(header);
  }
  return forwarded;
}
