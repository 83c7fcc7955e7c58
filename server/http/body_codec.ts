import { joinParts } from "../../proto/join_parts.ts";
import { readLength } from "../../proto/bytes_tensor.ts";
import {
  completeInferRequest,
  type DecodedInfer,
  type InferTarget,
  readInferDocument,
} from "../../proto/http_codec.ts";
import {
  type EncodedResponse,
  encodeInferResponse,
  isBinaryOutput,
} from "../../proto/http_codec_response.ts";
import {
  decodeGenerateRequest,
  encodeGenerateResponse,
  type GenerateTarget,
} from "../../proto/http_codec_generate.ts";
import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { JsonWriter } from "../../proto/json_writer.ts";
import { ServerError } from "../../proto/status.ts";
import { StringCache } from "../../proto/string_cache.ts";
import { inflatedTooLarge, runCodecJob } from "./codec_job.ts";
import { CodecThread } from "./codec_thread.ts";
import type { ContentCoding } from "./content_encoding.ts";

/** Up to this size bodies are compressed, and compressed bodies read, at once: about a millisecond. */
const INLINE_COMPRESSION_BYTES = 64 * 1024;
/** A short compressed body is read at once as long as the result stays below this. */
const INLINE_INFLATED_BYTES = 256 * 1024;
/** Deflate cannot do better: what states more is cut off, or has something behind its end. */
const MAX_RATIO = 1032;
/** JSON that is read at once: about ten milliseconds. */
const INLINE_JSON_BYTES = 1024 * 1024;
/** Bytes of tensors that are written as JSON at once: about ten milliseconds. */
const INLINE_TENSOR_BYTES = 96 * 1024;

/** Reads and writes the bodies of infer calls: short ones at once, long ones on a thread of their own. */
export class BodyCodec implements Disposable {
  readonly writer: JsonWriter = new JsonWriter();
  readonly #strings = new StringCache();
  readonly #thread = new CodecThread();

  /**
   * Reads gzip or zlib. `bytes` must stay untouched until the result is there.
   * @throws ServerError INVALID_ARG when it is malformed or longer than `maxBytes`.
   */
  inflate(bytes: Uint8Array, maxBytes: number): Uint8Array | Promise<Uint8Array> {
    const stated = statedSize(bytes);
    if (stated > maxBytes && stated <= MAX_RATIO * bytes.length) throw inflatedTooLarge(maxBytes);
    if (bytes.length <= INLINE_COMPRESSION_BYTES) {
      try {
        return runCodecJob("inflate", {
          bytes,
          maxBytes: Math.min(maxBytes, INLINE_INFLATED_BYTES),
        });
      } catch (reason) {
        const isLong = ServerError.from(reason).message.startsWith("Decompressed data size");
        if (!isLong || maxBytes <= INLINE_INFLATED_BYTES) throw reason;
      }
    }
    return this.#thread.run("inflate", () => ({ bytes: bytes.slice(), maxBytes }));
  }

  /** Compresses the parts of a body, which must stay untouched until the result is there. */
  deflate(parts: readonly Uint8Array[], coding: ContentCoding): Uint8Array | Promise<Uint8Array> {
    const byteSize = parts.reduce((size, part) => size + part.length, 0);
    if (byteSize <= INLINE_COMPRESSION_BYTES) {
      return runCodecJob("deflate", { bytes: joinParts(parts), coding });
    }
    return this.#thread.run("deflate", () => ({ bytes: joinParts(parts), coding }));
  }

  /** Decodes the body of an infer request; see `decodeInferRequest`. */
  decode(body: Uint8Array, target: InferTarget): DecodedInfer | Promise<DecodedInfer> {
    const headerLength = target.headerLength ?? body.length;
    const { maxInputBytes } = target;
    const json = headerLength === body.length ? body : body.subarray(0, headerLength);
    if (headerLength <= INLINE_JSON_BYTES || headerLength > maxInputBytes) {
      const document = readInferDocument(json, { maxInputBytes, strings: this.#strings });
      return completeInferRequest(document, body, target);
    }
    return this.#thread.run("readDocument", () => ({ json: json.slice(), maxInputBytes }))
      .then((document) => completeInferRequest(document, body, target));
  }

  /** Encodes the response to a decoded request; see `encodeInferResponse`. */
  encode(
    response: InferResponse,
    { request, forms }: DecodedInfer,
  ): EncodedResponse | Promise<EncodedResponse> {
    const requested = request.outputs;
    let jsonBytes = 0;
    for (let index = 0; index < response.outputs.length; index++) {
      const { name, data } = response.outputs[index]!;
      if (!isBinaryOutput(name, index, { requested, forms })) jsonBytes += data.length;
    }
    if (jsonBytes <= INLINE_TENSOR_BYTES) {
      return encodeInferResponse(response, requested, { forms, writer: this.writer });
    }
    return this.#thread.run("encodeResponse", () => ({
      response: copyOf(response),
      requested,
      forms,
    }));
  }

  /** Decodes the body of a generate request; see `decodeGenerateRequest`. */
  decodeGenerate(body: Uint8Array, target: GenerateTarget): InferRequest | Promise<InferRequest> {
    if (body.length <= INLINE_JSON_BYTES || body.length > target.maxInputBytes) {
      return decodeGenerateRequest(body, target);
    }
    return this.#thread.run("decodeGenerate", () => ({ body: body.slice(), target }));
  }

  /** Encodes one response of a generate request; see `encodeGenerateResponse`. */
  encodeGenerate(response: InferResponse): Uint8Array | Promise<Uint8Array> {
    const byteSize = response.outputs.reduce((size, { data }) => size + data.length, 0);
    if (byteSize <= INLINE_TENSOR_BYTES) return encodeGenerateResponse(response, this.writer);
    return this.#thread.run("encodeGenerate", () => ({ response: copyOf(response) }));
  }

  [Symbol.dispose](): void {
    this.#thread[Symbol.dispose]();
  }
}

/** With tensors of its own, which may go to another thread. */
function copyOf(response: InferResponse): InferResponse {
  const outputs = response.outputs.map((output) => ({ ...output, data: output.data.slice() }));
  return { ...response, outputs };
}

/** What gzip data says of its own length, modulo 2^32, in its last four bytes; nothing more than a hint. */
function statedSize(bytes: Uint8Array): number {
  if (bytes.length < 18 || bytes[0] !== 0x1f || bytes[1] !== 0x8b) return 0;
  return readLength(bytes, bytes.length - 4);
}
