import { setImmediate } from "node:timers";
import { constants, createDeflate, createGunzip, createGzip, createInflate } from "node:zlib";
import { deflateSync, gunzipSync, gzipSync, inflateSync } from "node:zlib";
import { Code, ConnectError } from "@connectrpc/connect";
import type { CompressionLevel } from "./grpc_options.ts";
import { ACCEPTED_ENCODINGS } from "./grpc_status.ts";
import { joinParts } from "../../proto/join_parts.ts";

/** Message encodings besides identity. */
export type MessageEncoding = "gzip" | "deflate";

/** A decompressed message; `release()` gives its bytes back to the budget. */
export interface InflatedMessage {
  readonly message: Uint8Array;
  readonly release: () => void;
}

/** Bounds of decompression, in bytes. */
export interface CompressionLimits {
  /** Largest result. */
  readonly maxMessageBytes: number;
  /** Results held at a time by all calls. */
  readonly maxInflatedBytes: number;
}

// Work of this size is done at once; more is done in slices, so that other calls go on meanwhile.
const AT_ONCE_BYTES = 64 * 1024;
const AT_ONCE_RESULT_BYTES = 1024 * 1024;
const SLICE_BYTES = 256 * 1024;

// A message may always grow to this size, and beyond it only by this factor: what grows more is an attack.
const FREE_RESULT_BYTES = 128 * 1024 * 1024;
const MAX_RATIO = 32;

const LEVELS: Readonly<Record<CompressionLevel, number>> = { none: 0, low: 1, medium: 3, high: 6 };

/** The encoding of a `grpc-encoding` value; undefined for identity. */
export function messageEncoding(name: string | null | undefined): MessageEncoding | undefined {
  if (name === undefined || name === null || name === "identity" || name === "") return undefined;
  if (name === "gzip" || name === "deflate") return name;
  const error = new ConnectError(
    `Unsupported message encoding '${name.slice(0, 64)}', expected identity, deflate or gzip`,
    Code.Unimplemented,
  );
  error.metadata.set("grpc-accept-encoding", ACCEPTED_ENCODINGS);
  throw error;
}

/** The encoding for answers to a client that sent this `grpc-accept-encoding`. */
export function responseEncoding(
  level: CompressionLevel,
  accepted: string | null | undefined,
): MessageEncoding | undefined {
  if (level === "none" || accepted === undefined || accepted === null) return undefined;
  const names = accepted.split(",").map((name) => name.trim());
  if (names.includes("gzip")) return "gzip";
  return names.includes("deflate") ? "deflate" : undefined;
}

/** Compresses and decompresses messages within bounds, without stopping the event loop for long. */
export class MessageCompression {
  readonly #limits: CompressionLimits;
  #heldBytes = 0;

  constructor(limits: CompressionLimits) {
    this.#limits = limits;
  }

  /**
   * Decompresses a message; small ones at once. Takes over `release` and calls it as soon as the compressed bytes
   * are not needed any more, also on failure.
   * @throws ConnectError RESOURCE_EXHAUSTED above a bound, INTERNAL for corrupt data; or rejects with it.
   */
  inflate(
    encoding: MessageEncoding,
    message: Uint8Array,
    release: () => void,
  ): InflatedMessage | Promise<InflatedMessage> {
    if (message.length <= AT_ONCE_BYTES) {
      const limit = Math.min(AT_ONCE_RESULT_BYTES, this.#limits.maxMessageBytes);
      const result = inflateAtOnce(encoding, message, limit);
      if (result !== "too large") {
        release();
        if (result === "corrupt") throw corrupt(encoding);
        return this.#hold(result);
      }
    }
    return this.#inflateSlices(encoding, message, release);
  }

  #hold(message: Uint8Array): InflatedMessage {
    const bytes = message.length;
    this.#heldBytes += bytes;
    return { message, release: () => void (this.#heldBytes -= bytes) };
  }

  async #inflateSlices(
    encoding: MessageEncoding,
    message: Uint8Array,
    release: () => void,
  ): Promise<InflatedMessage> {
    const limit = Math.min(
      this.#limits.maxMessageBytes,
      Math.max(FREE_RESULT_BYTES, message.length * MAX_RATIO),
    );
    const options = { chunkSize: SLICE_BYTES };
    const source = encoding === "gzip" ? createGunzip(options) : createInflate(options);
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    try {
      source.end(message);
      for await (const chunk of source as AsyncIterable<Uint8Array>) {
        bytes += chunk.length;
        this.#heldBytes += chunk.length;
        chunks.push(chunk);
        if (bytes > limit) throw tooLarge(limit);
        if (this.#heldBytes > this.#limits.maxInflatedBytes) throw noRoom();
        await nextTurn();
      }
      const result = joinParts(chunks);
      const held = bytes;
      bytes = 0;
      return { message: result, release: () => void (this.#heldBytes -= held) };
    } catch (reason) {
      throw reason instanceof ConnectError ? reason : corrupt(encoding);
    } finally {
      this.#heldBytes -= bytes;
      source.destroy();
      release();
    }
  }

  /** Compresses the bytes of `parts`; small messages at once. */
  deflate(
    encoding: MessageEncoding,
    level: CompressionLevel,
    parts: readonly Uint8Array[],
  ): Uint8Array[] | Promise<Uint8Array[]> {
    let bytes = 0;
    for (const part of parts) bytes += part.length;
    if (bytes > AT_ONCE_BYTES) return deflateSlices(encoding, LEVELS[level], parts);
    const options = { level: LEVELS[level] };
    const whole = joinParts(parts);
    return [encoding === "gzip" ? gzipSync(whole, options) : deflateSync(whole, options)];
  }
}

function inflateAtOnce(
  encoding: MessageEncoding,
  message: Uint8Array,
  limit: number,
): Uint8Array | "too large" | "corrupt" {
  if (message.length === 0) return message;
  try {
    const options = { maxOutputLength: limit };
    return encoding === "gzip" ? gunzipSync(message, options) : inflateSync(message, options);
  } catch (reason) {
    const code = reason instanceof Error && "code" in reason ? reason.code : undefined;
    return code === "ERR_BUFFER_TOO_LARGE" ? "too large" : "corrupt";
  }
}

async function deflateSlices(
  encoding: MessageEncoding,
  level: number,
  parts: readonly Uint8Array[],
): Promise<Uint8Array[]> {
  const options = { level, chunkSize: SLICE_BYTES, finishFlush: constants.Z_FINISH };
  const target = encoding === "gzip" ? createGzip(options) : createDeflate(options);
  const chunks: Uint8Array[] = [];
  target.on("data", (chunk: Uint8Array) => chunks.push(chunk));
  const ended = new Promise<void>((resolve, reject) => {
    target.on("end", resolve);
    target.on("error", reject);
  });
  for (const part of parts) {
    for (let from = 0; from < part.length; from += SLICE_BYTES) {
      const slice = part.subarray(from, from + SLICE_BYTES);
      await new Promise<void>((resolve) => target.write(slice, () => resolve()));
      await nextTurn();
    }
  }
  target.end();
  await ended;
  return chunks;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

function corrupt(encoding: MessageEncoding): ConnectError {
  return new ConnectError(`Failed to decompress a ${encoding} message`, Code.Internal);
}

function tooLarge(limit: number): ConnectError {
  return new ConnectError(
    `Received message larger than max after decompression: more than ${limit} bytes`,
    Code.ResourceExhausted,
  );
}

function noRoom(): ConnectError {
  return new ConnectError(
    "Too many decompressed bytes are in use by other calls",
    Code.ResourceExhausted,
  );
}
