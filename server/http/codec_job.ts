import { deflateSync, gzipSync, unzipSync } from "node:zlib";
import { type InferDocument, type OutputForms, readInferDocument } from "../../proto/http_codec.ts";
import { type EncodedResponse, encodeInferResponse } from "../../proto/http_codec_response.ts";
import {
  decodeGenerateRequest,
  encodeGenerateResponse,
  type GenerateTarget,
} from "../../proto/http_codec_generate.ts";
import type { InferRequest, InferResponse, RequestedOutput } from "../../proto/infer.ts";
import { JsonWriter } from "../../proto/json_writer.ts";
import { ServerError, type StatusCode } from "../../proto/status.ts";
import type { ContentCoding } from "./content_encoding.ts";

/** Work on bodies that may be done on another thread, and what comes of each kind of it. */
export interface CodecJobs {
  inflate: {
    input: { readonly bytes: Uint8Array; readonly maxBytes: number };
    output: Uint8Array;
  };
  deflate: {
    input: { readonly bytes: Uint8Array; readonly coding: ContentCoding };
    output: Uint8Array;
  };
  readDocument: {
    input: { readonly json: Uint8Array; readonly maxInputBytes: number };
    output: InferDocument;
  };
  encodeResponse: {
    input: {
      readonly response: InferResponse;
      readonly requested: readonly RequestedOutput[];
      readonly forms: OutputForms;
    };
    output: EncodedResponse;
  };
  decodeGenerate: {
    input: { readonly body: Uint8Array; readonly target: GenerateTarget };
    output: InferRequest;
  };
  encodeGenerate: {
    input: { readonly response: InferResponse };
    output: Uint8Array;
  };
}

/** Name of a kind of work. */
export type CodecJobKind = keyof CodecJobs;

/** A job as it is sent to the thread. */
export interface CodecMessage<Kind extends CodecJobKind = CodecJobKind> {
  readonly kind: Kind;
  readonly input: CodecJobs[Kind]["input"];
}

/** What the thread answers. */
export type CodecReply =
  | { readonly output: CodecJobs[CodecJobKind]["output"] }
  | { readonly code: StatusCode; readonly message: string };

type Codec = {
  [Kind in CodecJobKind]: (input: CodecJobs[Kind]["input"]) => CodecJobs[Kind]["output"];
};

/** Fast and nearly as good as the others on tensors, which compress badly anyway. */
const COMPRESSION_LEVEL = 1;

const CODEC: Codec = {
  inflate,
  deflate({ bytes, coding }) {
    return ownBytes(
      (coding === "gzip" ? gzipSync : deflateSync)(bytes, { level: COMPRESSION_LEVEL }),
    );
  },
  readDocument({ json, maxInputBytes }) {
    return readInferDocument(json, { maxInputBytes });
  },
  encodeResponse({ response, requested, forms }) {
    return encodeInferResponse(response, requested, { forms, writer: new JsonWriter() });
  },
  decodeGenerate({ body, target }) {
    return decodeGenerateRequest(body, target);
  },
  encodeGenerate({ response }) {
    return ownBytes(encodeGenerateResponse(response, new JsonWriter()));
  },
};

/** Does a job on the calling thread. */
export function runCodecJob<Kind extends CodecJobKind>(
  kind: Kind,
  input: CodecJobs[Kind]["input"],
): CodecJobs[Kind]["output"] {
  return CODEC[kind](input);
}

/** Stops as soon as the limit is passed. Tells gzip from zlib by the first bytes, whatever the header said. */
function inflate({ bytes, maxBytes }: CodecJobs["inflate"]["input"]): Uint8Array {
  try {
    return ownBytes(unzipSync(bytes, { maxOutputLength: Math.max(maxBytes, 1) }));
  } catch (reason) {
    const { code, message } = reason as { code?: string; message: string };
    if (code === "ERR_BUFFER_TOO_LARGE") throw inflatedTooLarge(maxBytes);
    throw new ServerError("INVALID_ARG", `Unable to decompress request body: ${message}`);
  }
}

/** The error of a body that is longer than `maxBytes` when inflated. */
export function inflatedTooLarge(maxBytes: number): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `Decompressed data size exceeds the maximum allowed value of ${maxBytes} bytes. ` +
      `Use --http-max-input-size to increase the limit.`,
  );
}

/** A buffer that is not shared with others: small ones lie in a pool, which must not go to another thread. */
function ownBytes(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength
    ? new Uint8Array(bytes.buffer)
    : new Uint8Array(bytes);
}

/**
 * The buffers of a value that can be handed to another thread instead of being copied. Empty ones stay: they may be
 * constants that the next value holds as well.
 */
export function buffersOf(value: unknown, found = new Set<ArrayBuffer>()): Set<ArrayBuffer> {
  if (value instanceof Uint8Array) {
    const { buffer } = value;
    if (buffer instanceof ArrayBuffer && buffer.byteLength > 0) found.add(buffer);
  } else if (Array.isArray(value)) {
    for (const element of value) {
      if (typeof element === "object") buffersOf(element, found);
    }
  } else if (typeof value === "object" && value !== null) {
    for (const member of Object.values(value)) buffersOf(member, found);
  }
  return found;
}
