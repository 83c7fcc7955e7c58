import { Code, ConnectError } from "@connectrpc/connect";
import type { InferenceApi } from "../core/inference_api.ts";
import { Cancellation } from "../transport/cancellation.ts";
import type { CancelSignal, RpcStream } from "../transport/transport.ts";
import type { EncodedMessage } from "../../proto/grpc_codec_response.ts";
import type { GrpcOptions } from "./grpc_options.ts";
import { errorTrailers, OK_TRAILERS, RESPONSE_HEADERS } from "./grpc_status.ts";
import { parseGrpcTimeout } from "./grpc_timeout.ts";
import {
  type InflatedMessage,
  type MessageCompression,
  type MessageEncoding,
  messageEncoding,
  responseEncoding,
} from "./message_compression.ts";
import { PREFIX_BYTES, writePrefix } from "./message_frame.ts";
import type { StateWatch } from "./state_watch.ts";

/** What the calls of one handler share. */
export interface RpcContext {
  readonly api: InferenceApi;
  readonly options: GrpcOptions;
  readonly compression: MessageCompression;
  readonly stateWatch: StateWatch;
}

/** A message as it arrived; `release` must be called once when its bytes are not needed any more. */
export interface MessageFrame extends InflatedMessage {
  readonly compressed: boolean;
}

/** A message to be used, or undefined when it could not be decompressed and the call has failed. */
export type InflateResult = InflatedMessage | undefined;

/** The life of one RPC on its stream: metadata, deadline, messages, and exactly one end. */
export class RpcCall {
  readonly stream: RpcStream;
  readonly context: RpcContext;
  /** When the call came, if anything is traced; else 0. */
  readonly openedMs: number;
  /** Called when the client or its deadline ended the call. */
  onCancel: () => void = () => {};
  readonly #cancellation = new Cancellation();
  #timer: { cancel(): void } | undefined;
  #requestEncoding: MessageEncoding | undefined;
  #responseEncoding: MessageEncoding | undefined;
  #headersSent = false;
  #ended = false;
  #holds = 0;
  #pending: Promise<void> | undefined;

  constructor(stream: RpcStream, context: RpcContext) {
    this.stream = stream;
    this.context = context;
    this.openedMs = context.api.traceTime();
    stream.onReset = () => this.cancel();
    stream.onRefused = ({ reason, message }) => {
      const code = reason === "malformed" ? Code.Internal : Code.ResourceExhausted;
      this.abandon(new ConnectError(message, code));
    };
  }

  /** Reads deadline and encodings; false when the call was refused for them. */
  begin(): boolean {
    const { headers } = this.stream;
    try {
      this.#requestEncoding = messageEncoding(headers.get("grpc-encoding"));
      const timeout = headers.get("grpc-timeout");
      if (timeout !== undefined) this.#startTimer(parseGrpcTimeout(timeout));
      return true;
    } catch (reason) {
      this.fail(reason);
      return false;
    }
  }

  #startTimer(delayMs: number): void {
    this.#timer = this.context.options.setTimer(delayMs, () => {
      this.fail(new ConnectError("Deadline Exceeded", Code.DeadlineExceeded));
      this.#abort();
    });
  }

  /** Allows compressed answers as the options and the client have it. */
  enableCompression(): void {
    const { responseCompressionLevel: level } = this.context.options;
    if (level === "none") return;
    this.#responseEncoding = responseEncoding(
      level,
      this.stream.headers.get("grpc-accept-encoding"),
    );
  }

  /** Aborted when the client has gone or the deadline passed. */
  get signal(): CancelSignal {
    return this.#cancellation;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** The client has gone: nothing can be sent any more. */
  cancel(): void {
    this.#end();
    this.#abort();
  }

  #abort(): void {
    if (this.#cancellation.aborted) return;
    this.#cancellation.abort();
    this.onCancel();
  }

  #end(): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.#timer?.cancel();
    return true;
  }

  /**
   * Decompresses a message if it is compressed. Takes over `release`; a failure ends the call and gives undefined.
   */
  inflate(frame: MessageFrame): InflateResult | Promise<InflateResult> {
    if (!frame.compressed) return frame;
    const { message, release } = frame;
    const encoding = this.#requestEncoding;
    if (encoding === undefined) {
      release();
      this.abandon(
        new ConnectError("Compressed message without a grpc-encoding that says how", Code.Internal),
      );
      return undefined;
    }
    try {
      const inflated = this.context.compression.inflate(encoding, message, release);
      if (!(inflated instanceof Promise)) return inflated;
      return inflated.catch((reason) => this.abandon(reason) as undefined);
    } catch (reason) {
      this.abandon(reason);
      return undefined;
    }
  }

  /** Holds the client back until as many `unhold()` calls came as `hold()` calls. */
  hold(): void {
    if (++this.#holds === 1 && !this.#ended) this.stream.pause();
  }

  unhold(): void {
    if (--this.#holds === 0 && !this.#ended) this.stream.resume();
  }

  sendHeaders(): void {
    if (this.#headersSent || this.#ended) return;
    this.#headersSent = true;
    const encoding = this.#responseEncoding;
    this.stream.sendHeaders(
      encoding === undefined
        ? RESPONSE_HEADERS
        : [...RESPONSE_HEADERS, ["grpc-encoding", encoding]],
    );
  }

  /**
   * Sends one message. `onSent` is called exactly once, also when the call has ended.
   * @returns False when the caller should wait for the stream to drain; compressed messages answer true.
   */
  send(encoded: EncodedMessage, onSent: () => void): boolean {
    if (this.#ended) {
      onSent();
      return true;
    }
    this.sendHeaders();
    if (this.#responseEncoding !== undefined) {
      this.#sendCompressed(this.#responseEncoding, encoded, onSent);
      return true;
    }
    writePrefix(encoded.parts[0]!, encoded.byteSize);
    return this.stream.send(encoded.parts, onSent);
  }

  /** Compression may take a while: what is sent after a message waits for it. */
  #sendCompressed(encoding: MessageEncoding, encoded: EncodedMessage, onSent: () => void): void {
    const { compression, options } = this.context;
    const plain = [encoded.parts[0]!.subarray(PREFIX_BYTES), ...encoded.parts.slice(1)];
    const write = (parts: readonly Uint8Array[]) => {
      if (this.#ended) return onSent();
      const prefix = new Uint8Array(PREFIX_BYTES);
      writePrefix(prefix, parts.reduce((sum, part) => sum + part.length, 0), true);
      this.stream.send([prefix, ...parts], onSent);
    };
    const result = compression.deflate(encoding, options.responseCompressionLevel, plain);
    if (this.#pending === undefined && !(result instanceof Promise)) return write(result);
    const turn = (this.#pending ?? Promise.resolve()).then(() => result).then(write, (reason) => {
      onSent();
      this.abandon(reason);
    });
    this.#pending = turn;
    turn.then(() => {
      if (this.#pending === turn) this.#pending = undefined;
    });
  }

  /** Ends the call with success, after what was sent. */
  finish(): void {
    if (this.#pending !== undefined) {
      this.#pending.then(() => this.finish());
      return;
    }
    if (!this.#end()) return;
    if (this.#headersSent) this.stream.finish(OK_TRAILERS);
    else this.stream.finish([...RESPONSE_HEADERS, ...OK_TRAILERS]);
  }

  /** Ends the call with the status that `reason` means. */
  fail(reason: unknown): void {
    if (!this.#end()) return;
    const trailers = errorTrailers(reason);
    this.stream.finish(this.#headersSent ? trailers : [...RESPONSE_HEADERS, ...trailers]);
  }

  /** Ends the call with a failure and cancels what still runs for it. */
  abandon(reason: unknown): void {
    this.fail(reason);
    this.#abort();
  }
}
