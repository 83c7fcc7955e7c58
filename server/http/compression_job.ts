import { deflateSync, gzipSync, unzipSync } from "node:zlib";
import type { ContentCoding } from "./content_encoding.ts";

/** What a compression job is asked to do. */
export type CompressionJob =
  | { readonly kind: "inflate"; readonly bytes: Uint8Array<ArrayBuffer>; readonly maxBytes: number }
  | {
    readonly kind: "deflate";
    readonly bytes: Uint8Array<ArrayBuffer>;
    readonly coding: ContentCoding;
  };

/** What became of it. `tooLarge`: the result would be longer than `maxBytes`. */
export type CompressionResult =
  | { readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly problem: "tooLarge" | "malformed"; readonly message: string };

/** Fast and nearly as good as the others on tensors, which compress badly anyway. */
const LEVEL = 1;

/** Does a job on the calling thread. Inflating stops as soon as the limit is passed. */
export function runCompressionJob(job: CompressionJob): CompressionResult {
  if (job.kind === "deflate") {
    const deflate = job.coding === "gzip" ? gzipSync : deflateSync;
    return { bytes: toBytes(deflate(job.bytes, { level: LEVEL })) };
  }
  try {
    // Tells gzip from zlib by the first bytes, whatever the header said.
    return { bytes: toBytes(unzipSync(job.bytes, { maxOutputLength: Math.max(job.maxBytes, 1) })) };
  } catch (reason) {
    const { code, message } = reason as { code?: string; message: string };
    const problem = code === "ERR_BUFFER_TOO_LARGE" ? "tooLarge" : "malformed";
    return { problem, message };
  }
}

function toBytes(buffer: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(buffer.buffer as ArrayBuffer, buffer.byteOffset, buffer.byteLength);
}
