import type { InferenceApi, RequestTrace, StreamedResponse } from "../core/inference_api.ts";
import { type InferMessage, parseInferMessage } from "../../proto/grpc_codec.ts";
import {
  type EncodedMessage,
  encodeInferResponse,
  encodeStreamFailure,
} from "../../proto/grpc_codec_response.ts";
import type { InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { DecoupledCall, type MessageSink } from "./decoupled_call.ts";
import {
  type InferCallOptions,
  shuttingDown,
  startInfer,
  startInferStream,
  startTrace,
} from "./model_infer.ts";
import type { Metadata } from "./grpc_options.ts";
import { toConnectError } from "./grpc_status.ts";
import { StreamBacklog } from "./stream_backlog.ts";
import { type OutboxLimits, StreamOutbox } from "./stream_outbox.ts";

/** What a stream may have waiting to be written before its models are asked to wait. */
const STREAM_LIMITS: OutboxLimits = { maxMessages: 512, maxBytes: 4 * 1024 * 1024 };
/** How many times the usual bound may wait to be written when models do not wait; then the stream ends. */
const MAX_OVERFULL = 64;

/** Where the answers of a stream go. */
export interface StreamSink {
  /** Writes one message; `onSent` is called once when it was written or nothing can be written any more. */
  send(encoded: EncodedMessage, onSent: () => void): void;
  /** Ends the stream: with success, or with an error and the cancellation of what still runs. */
  finish(reason?: unknown): void;
  /** Holds the client back until `resume()`. */
  pause(): void;
  resume(): void;
}

/** Settings of one stream. */
export interface StreamInferOptions extends InferCallOptions {
  /** `triton_grpc_error: true`: the first failure ends the stream with its status. */
  readonly errorAsStatus: boolean;
  /** Of the call, for the traces of its requests. */
  readonly metadata: Metadata;
  readonly maxRequests: number;
  readonly maxBytes: number;
}

/** A request of the stream, waiting for its turn to be answered. */
interface Slot {
  readonly id: string;
  readonly release: () => void;
  readonly byteSize: number;
  readonly trace: RequestTrace | undefined;
  response: InferResponse | undefined;
  failure: EncodedMessage | undefined;
}

/**
 * Runs the requests of one ModelStreamInfer call (grpc.md §4): enqueued in order of arrival without waiting, answered
 * in the same order, failures told inside the stream.
 */
export class StreamInfer {
  readonly #api: InferenceApi;
  readonly #options: StreamInferOptions;
  readonly #sink: StreamSink;
  readonly #slots: Slot[] = [];
  /** Requests of decoupled models: written as they come. */
  readonly #decoupled = new Set<DecoupledCall>();
  readonly #outbox: StreamOutbox;
  #inFlight = 0;
  #bytesInFlight = 0;
  /** Requests that came all the same while the client is held back. */
  readonly #backlog = new StreamBacklog();
  #paused = false;
  #isTaking = false;
  /** The client half-closed behind the requests of the backlog. */
  #endsAfterBacklog = false;
  #closed = false;
  /** Since when the next message is waited for, if anything is traced; else 0. */
  #waitingSinceMs: number;
  /** Set when no more requests come: how the stream ends after the last answer. */
  #ending: { readonly reason: unknown } | undefined;

  constructor(api: InferenceApi, options: StreamInferOptions, sink: StreamSink) {
    this.#api = api;
    this.#options = options;
    this.#sink = sink;
    this.#outbox = new StreamOutbox(STREAM_LIMITS);
    this.#waitingSinceMs = api.traceTime();
  }

  /** Takes one encoded request; `release` is called when no byte of it is needed any more. */
  accept(message: Uint8Array, release: () => void): void {
    if (this.#closed || this.#ending !== undefined) return release();
    if (this.#paused) this.#backlog.add({ message, release });
    else this.#take(message, release);
  }

  #take(message: Uint8Array, release: () => void): void {
    let parsed: InferMessage;
    try {
      if (this.#api.isExiting()) throw shuttingDown();
      parsed = parseInferMessage(message);
    } catch (reason) {
      release();
      this.#endAfterAnswers(reason);
      return;
    }
    const byteSize = message.length;
    this.#inFlight++;
    this.#bytesInFlight += byteSize;
    const nowMs = this.#api.traceTime();
    const trace = nowMs === 0 ? undefined : startTrace(this.#api, parsed, {
      metadata: this.#options.metadata,
      waitingSinceMs: this.#waitingSinceMs,
    });
    this.#waitingSinceMs = nowMs;
    if (this.#isDecoupled(parsed)) this.#startDecoupled(parsed, { release, byteSize, trace });
    else {
      const slot: Slot = {
        id: parsed.id,
        release,
        byteSize,
        trace,
        response: undefined,
        failure: undefined,
      };
      this.#slots.push(slot);
      this.#start(slot, parsed);
    }
    this.#holdBack();
  }

  /** False also for a model that is not there: whatever is wrong is found on the usual way. */
  #isDecoupled({ modelName, modelVersion }: InferMessage): boolean {
    try {
      return this.#api.isDecoupled(modelName, modelVersion);
    } catch {
      return false;
    }
  }

  #startDecoupled(
    message: InferMessage,
    { release, byteSize, trace }: Pick<Slot, "release" | "byteSize" | "trace">,
  ): void {
    const call = new DecoupledCall(message, tracedSink(this.#messageSink, trace), () => {
      release();
      trace?.end();
      this.#decoupled.delete(call);
      this.#over(byteSize);
      this.#flush();
    });
    this.#decoupled.add(call);
    const receive = (response: StreamedResponse) => call.receive(response) ?? this.#room();
    const fail = (reason: unknown, isStarted: boolean) => {
      call.fail(reason, { isFinal: true, isRefusal: !isStarted || isRefusal(reason) });
      call.settled();
    };
    try {
      startInferStream(this.#api, message, { ...this.#options, trace, receive }).then(
        () => call.settled(),
        (reason) => fail(reason, true),
      );
    } catch (reason) {
      fail(reason, false);
    }
  }

  /** Undefined once the stream is over: a model that goes on is not held up. */
  #room(): Promise<void> | undefined {
    return this.#closed ? undefined : this.#outbox.room;
  }

  readonly #messageSink: MessageSink = {
    send: (encoded, onSent) => {
      const { byteSize } = encoded;
      this.#outbox.add(byteSize);
      this.#sink.send(encoded, () => {
        this.#outbox.subtract(byteSize);
        onSent();
      });
      if (this.#outbox.isOver(MAX_OVERFULL)) this.#close(overfull());
    },
    fail: (reason) => {
      if (this.#options.errorAsStatus) this.#close(reason);
      return this.#options.errorAsStatus;
    },
    releaseResponse: (response) => this.#api.releaseResponse(response),
  };

  #start(slot: Slot, message: InferMessage): void {
    try {
      const { trace } = slot;
      const options = trace === undefined ? this.#options : { ...this.#options, trace };
      startInfer(this.#api, message, options).then(
        (response) => this.#answered(slot, response),
        (reason) => this.#failed(slot, reason, message),
      );
    } catch (reason) {
      this.#failed(slot, reason);
    }
  }

  #answered(slot: Slot, response: InferResponse): void {
    slot.response = response;
    if (this.#closed) return this.#drop(slot);
    this.#flush();
  }

  #failed(slot: Slot, reason: unknown, message?: InferMessage): void {
    if (this.#closed) return this.#drop(slot);
    if (this.#options.errorAsStatus) {
      slot.failure = { parts: [], byteSize: 0 };
      this.#close(reason);
      return;
    }
    const text = toConnectError(reason).rawMessage;
    slot.failure = encodeStreamFailure(
      message === undefined || isRefusal(reason) ? { message: text, id: slot.id } : {
        message: text,
        id: slot.id,
        model: { name: message.modelName, version: message.modelVersion, final: true },
      },
    );
    this.#flush();
  }

  /** Writes what is ready, in order. */
  #flush(): void {
    while (!this.#closed) {
      const slot = this.#slots[0];
      if (slot === undefined || (slot.response ?? slot.failure) === undefined) break;
      this.#slots.shift();
      this.#write(slot);
    }
    if (
      this.#closed || this.#ending === undefined || this.#slots.length > 0 ||
      this.#decoupled.size > 0
    ) return;
    this.#close(this.#ending.reason);
  }

  #write(slot: Slot): void {
    let encoded: EncodedMessage;
    try {
      encoded = slot.failure ?? encodeInferResponse(slot.response!, { stream: true, final: true });
    } catch (reason) {
      encoded = encodeStreamFailure({ message: toConnectError(reason).rawMessage, id: slot.id });
    }
    slot.trace?.mark("GRPC_SEND_START");
    this.#sink.send(encoded, () => {
      if (!this.#closed) slot.trace?.mark("GRPC_SEND_END");
      this.#drop(slot);
      this.#over(slot.byteSize);
    });
  }

  #over(byteSize: number): void {
    this.#inFlight--;
    this.#bytesInFlight -= byteSize;
    this.#holdBack();
  }

  #drop(slot: Slot): void {
    if (slot.response !== undefined) this.#api.releaseResponse(slot.response);
    slot.release();
    slot.trace?.end();
  }

  /** Stops and starts the client: resumes only at half of the bounds, so that it does not toggle at each answer. */
  #holdBack(): void {
    if (this.#closed) return;
    const { maxRequests, maxBytes } = this.#options;
    if (this.#paused) {
      if (this.#inFlight > maxRequests / 2 || this.#bytesInFlight > maxBytes / 2) return;
      if (!this.#isTaking) this.#takeBacklog();
    } else if (this.#inFlight >= maxRequests || this.#bytesInFlight >= maxBytes) {
      this.#paused = true;
      this.#sink.pause();
    }
  }

  /** Takes what came while the client was held back, as far as the bounds allow; only behind that more may come. */
  #takeBacklog(): void {
    const { maxRequests, maxBytes } = this.#options;
    this.#isTaking = true;
    while (this.#inFlight < maxRequests && this.#bytesInFlight < maxBytes) {
      const next = this.#closed || this.#ending !== undefined ? undefined : this.#backlog.take();
      if (next === undefined) break;
      this.#take(next.message, next.release);
    }
    this.#isTaking = false;
    if (this.#closed || !this.#backlog.isEmpty) return;
    if (this.#endsAfterBacklog) return this.#endAfterAnswers(undefined);
    if (this.#inFlight >= maxRequests || this.#bytesInFlight >= maxBytes) return;
    this.#paused = false;
    this.#sink.resume();
  }

  /** The client half-closed: the stream ends after the last answer. */
  end(): void {
    if (this.#backlog.isEmpty) this.#endAfterAnswers(undefined);
    else this.#endsAfterBacklog = true;
  }

  /** The server is going down: no more requests, and the end after the last answer. */
  shutDown(): void {
    this.#endAfterAnswers(shuttingDown());
  }

  #endAfterAnswers(reason: unknown): void {
    if (this.#closed || this.#ending !== undefined) return;
    this.#ending = { reason };
    this.#backlog.clear();
    this.#flush();
  }

  /** The client has gone: nothing is written any more, what runs is dropped when it settles. */
  cancel(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const slot of this.#slots) {
      if ((slot.response ?? slot.failure) !== undefined) this.#drop(slot);
    }
    this.#slots.length = 0;
    this.#backlog.clear();
    for (const call of this.#decoupled) call.close();
    this.#outbox.close();
  }

  #close(reason: unknown): void {
    this.cancel();
    this.#sink.finish(reason);
  }
}

/** Notes when each message of a traced request is written. */
function tracedSink(sink: MessageSink, trace: RequestTrace | undefined): MessageSink {
  if (trace === undefined) return sink;
  return {
    ...sink,
    send(encoded, onSent) {
      trace.mark("GRPC_SEND_START");
      sink.send(encoded, () => {
        trace.mark("GRPC_SEND_END");
        onSent();
      });
    },
  };
}

function overfull(): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    "too many responses wait to be sent: the client does not read them, and the model does not wait for it",
  );
}

/** A request that no model ever had is told with its id only (grpc.md §4). */
function isRefusal(reason: unknown): boolean {
  return reason instanceof ServerError && reason.isRefusal;
}
