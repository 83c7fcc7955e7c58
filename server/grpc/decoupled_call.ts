import type { InferMessage } from "../../proto/grpc_codec.ts";
import { wantsEmptyFinal } from "../../proto/grpc_codec_parameters.ts";
import {
  type EncodedMessage,
  encodeInferResponse,
  encodeStreamFailure,
} from "../../proto/grpc_codec_response.ts";
import type { InferResponse } from "../../proto/infer.ts";
import type { StreamedResponse } from "../core/inference_api.ts";
import { toConnectError } from "./grpc_status.ts";
import { type OutboxLimits, StreamOutbox } from "./stream_outbox.ts";

/** What one request may have waiting to be written before its model is asked to wait. */
const REQUEST_LIMITS: OutboxLimits = { maxMessages: 64, maxBytes: 1024 * 1024 };

/** Where the messages of a decoupled request go. */
export interface MessageSink {
  /** Writes one message; `onSent` is called once when it was written or nothing can be written any more. */
  send(encoded: EncodedMessage, onSent: () => void): void;
  /** A failure that ends the whole stream instead of being told in it; false = tell it. */
  fail(reason: unknown): boolean;
  releaseResponse(response: InferResponse): void;
}

/** One request of a decoupled model on a stream: encodes its responses, and knows when its buffers are free. */
export class DecoupledCall {
  readonly #message: InferMessage;
  readonly #sink: MessageSink;
  readonly #outbox = new StreamOutbox(REQUEST_LIMITS);
  readonly #onOver: () => void;
  #isSettled = false;
  #isClosed = false;

  /** `onOver` is called once, when the request has ended and its last message was written. */
  constructor(message: InferMessage, sink: MessageSink, onOver: () => void) {
    this.#message = message;
    this.#sink = sink;
    this.#onOver = onOver;
  }

  /** Writes what the model sent; a promise asks it to wait. */
  receive({ response, error, isFinal }: StreamedResponse): Promise<void> | undefined {
    if (this.#isClosed) {
      if (response !== undefined) this.#sink.releaseResponse(response);
      return undefined;
    }
    if (response !== undefined) this.#respond(response, isFinal);
    else if (error !== undefined) this.fail(error, { isFinal });
    else if (isFinal && wantsEmptyFinal(this.#message.parameters)) this.#sendEmptyFinal();
    return this.#isClosed ? undefined : this.#outbox.room;
  }

  #respond(response: InferResponse, isFinal: boolean): void {
    let encoded: EncodedMessage;
    try {
      encoded = encodeInferResponse(response, { stream: true, final: isFinal });
    } catch (reason) {
      this.#sink.releaseResponse(response);
      return this.fail(reason, { isFinal });
    }
    // Outputs may lie in the message by reference.
    this.#send(encoded, () => this.#sink.releaseResponse(response));
  }

  #sendEmptyFinal(): void {
    const { modelName, modelVersion, id } = this.#message;
    const response = { modelName, modelVersion, id, parameters: {}, outputs: [] };
    this.#send(encodeInferResponse(response, { stream: true, final: true }));
  }

  /** Tells of a failure; `isRefusal` = no model ever had the request. */
  fail(
    reason: unknown,
    { isFinal, isRefusal = false }: { readonly isFinal: boolean; readonly isRefusal?: boolean },
  ): void {
    if (this.#isClosed || this.#sink.fail(reason)) return;
    const { modelName, modelVersion, id } = this.#message;
    const { rawMessage: message } = toConnectError(reason);
    const model = { name: modelName, version: modelVersion, final: isFinal };
    this.#send(encodeStreamFailure(isRefusal ? { message, id } : { message, id, model }));
  }

  #send(encoded: EncodedMessage, release?: () => void): void {
    const { byteSize } = encoded;
    this.#outbox.add(byteSize);
    this.#sink.send(encoded, () => {
      release?.();
      this.#outbox.subtract(byteSize);
      this.#checkOver();
    });
  }

  /** The core does not use the request any more. */
  settled(): void {
    this.#isSettled = true;
    this.#checkOver();
  }

  #checkOver(): void {
    if (!this.#isSettled || !this.#outbox.isEmpty) return;
    this.#isSettled = false;
    this.#onOver();
  }

  /** The stream is over: nothing is written any more, and nobody waits. */
  close(): void {
    this.#isClosed = true;
    this.#outbox.close();
  }
}
