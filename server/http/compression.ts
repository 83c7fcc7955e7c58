import { ServerError } from "../../proto/status.ts";
import {
  type CompressionJob,
  type CompressionResult,
  runCompressionJob,
} from "./compression_job.ts";
import type { ContentCoding } from "./content_encoding.ts";

/** Up to this size a body is compressed at once; a longer one would hold up every other connection. */
const INLINE_BYTES = 64 * 1024;
/** A short compressed body is inflated at once as long as the result stays below this. */
const INLINE_INFLATED_BYTES = 256 * 1024;
/** Jobs that may wait for the thread. */
const JOBS_MAX = 64;
/** The thread ends when it had nothing to do for so long. */
const IDLE_MS = 10_000;

/** Compresses and decompresses bodies; large ones on a thread of its own, so that the event loop stays free. */
export interface Compressor extends Disposable {
  /**
   * Inflates gzip or zlib. `bytes` may be reused as soon as this returned.
   * @throws ServerError INVALID_ARG when it is malformed or longer than `maxBytes`.
   */
  inflate(bytes: Uint8Array, maxBytes: number): Uint8Array | Promise<Uint8Array>;
  /** Compresses the parts of a body, which may be reused as soon as this returned. */
  deflate(
    parts: readonly Uint8Array[],
    coding: ContentCoding,
  ): Uint8Array | Promise<Uint8Array>;
}

/** Creates a compressor; its thread starts with the first large body. */
export function createCompressor(): Compressor {
  const thread = new CompressionThread();
  return {
    inflate(bytes, maxBytes) {
      if (bytes.length <= INLINE_BYTES) {
        const inlineMax = Math.min(maxBytes, INLINE_INFLATED_BYTES);
        const result = runCompressionJob({
          kind: "inflate",
          bytes: owned(bytes),
          maxBytes: inlineMax,
        });
        const isFinal = "bytes" in result || result.problem !== "tooLarge" ||
          inlineMax === maxBytes;
        if (isFinal) return inflated(result, maxBytes);
      }
      return thread.run({ kind: "inflate", bytes: bytes.slice(), maxBytes })
        .then((result) => inflated(result, maxBytes));
    },
    deflate(parts, coding) {
      const job: CompressionJob = { kind: "deflate", bytes: join(parts), coding };
      if (job.bytes.length <= INLINE_BYTES) return deflated(runCompressionJob(job));
      return thread.run(job).then(deflated);
    },
    [Symbol.dispose]() {
      thread.stop();
    },
  };
}

function inflated(result: CompressionResult, maxBytes: number): Uint8Array {
  if ("bytes" in result) return result.bytes;
  if (result.problem === "malformed") {
    throw new ServerError("INVALID_ARG", `Unable to decompress request body: ${result.message}`);
  }
  throw new ServerError(
    "INVALID_ARG",
    `Decompressed data size exceeds the maximum allowed value of ${maxBytes} bytes. ` +
      `Use --http-max-input-size to increase the limit.`,
  );
}

function deflated(result: CompressionResult): Uint8Array {
  if ("bytes" in result) return result.bytes;
  throw new ServerError("INTERNAL", `Unable to compress response body: ${result.message}`);
}

/** zlib only reads; the type asks for memory that is not shared. */
function owned(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return bytes as Uint8Array<ArrayBuffer>;
}

function join(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}

interface QueuedJob {
  readonly job: CompressionJob;
  readonly resolve: (result: CompressionResult) => void;
  readonly reject: (reason: ServerError) => void;
}

/** One Worker that does one job after the other. */
class CompressionThread {
  #worker: Worker | undefined;
  readonly #jobs: QueuedJob[] = [];
  #idleTimer: ReturnType<typeof setTimeout> | undefined;

  /** Does a job; its bytes are handed over. */
  run(job: CompressionJob): Promise<CompressionResult> {
    if (this.#jobs.length >= JOBS_MAX) {
      return Promise.reject(
        new ServerError("UNAVAILABLE", "Too many compressed bodies are waiting, try again later"),
      );
    }
    return new Promise((resolve, reject) => {
      this.#jobs.push({ job, resolve, reject });
      if (this.#jobs.length === 1) this.#send();
    });
  }

  /** Ends the thread; jobs that wait fail. */
  stop(): void {
    clearTimeout(this.#idleTimer);
    this.#worker?.terminate();
    this.#worker = undefined;
    for (const { reject } of this.#jobs.splice(0)) {
      reject(new ServerError("UNAVAILABLE", "Server exiting"));
    }
  }

  #send(): void {
    const next = this.#jobs[0];
    if (next === undefined) return this.#waitForWork();
    clearTimeout(this.#idleTimer);
    this.#worker ??= this.#start();
    this.#worker.postMessage(next.job, [next.job.bytes.buffer]);
  }

  #start(): Worker {
    const worker = new Worker(new URL("./compression_worker.ts", import.meta.url), {
      type: "module",
      name: "compression",
    });
    worker.onmessage = ({ data }: MessageEvent<CompressionResult>) => {
      this.#jobs.shift()?.resolve(data);
      this.#send();
    };
    worker.onerror = (event) => {
      event.preventDefault();
      worker.terminate();
      this.#worker = undefined;
      this.#jobs.shift()?.reject(
        new ServerError("INTERNAL", `Compression failed: ${event.message}`),
      );
      this.#send();
    };
    return worker;
  }

  /** A thread that is not needed would keep the process alive. */
  #waitForWork(): void {
    const timer = setTimeout(() => {
      this.#worker?.terminate();
      this.#worker = undefined;
    }, IDLE_MS);
    Deno.unrefTimer(timer);
    this.#idleTimer = timer;
  }
}
