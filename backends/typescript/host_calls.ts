import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import type { CancelSignal } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { CallMessage, ExecuteRequest, ModelHost } from "../backend.ts";
import type { ArrivedFrame, FrameSender } from "./frame_link.ts";
import type { FrameReader } from "./frame_reader.ts";
import { FRAME, OUTCOME, WINDOW } from "./worker_protocol.ts";

interface OpenCall {
  readonly abort: AbortController;
  underWay: number;
  wake: (() => void) | undefined;
  /** Nobody takes its responses any more: the one who is called must not wait for that. */
  isAbandoned: boolean;
}

/** Calls of other models that the model of one Worker makes. */
export class HostCalls {
  readonly #host: ModelHost;
  readonly #frames: FrameSender;
  /** The request on whose behalf a call is made, by number. */
  readonly #findRequest: (request: number) => ExecuteRequest | undefined;
  readonly #open = new Map<number, OpenCall>();

  constructor(parts: {
    readonly host: ModelHost;
    readonly frames: FrameSender;
    readonly findRequest: (request: number) => ExecuteRequest | undefined;
  }) {
    this.#host = parts.host;
    this.#frames = parts.frames;
    this.#findRequest = parts.findRequest;
  }

  /** Makes the call of a frame. */
  start(frame: ArrivedFrame): void {
    const { reader } = frame;
    const id = reader.u32();
    const decoupled = reader.u8() === 1;
    const origin = this.#findRequest(reader.u32());
    const request = readCall(reader);
    const call: OpenCall = {
      abort: new AbortController(),
      underWay: 0,
      wake: undefined,
      isAbandoned: false,
    };
    this.#open.set(id, call);
    const unfollow = follow(origin?.signal, call.abort);
    const receive = (message: CallMessage) => this.#receive(id, call, message);
    const options = { decoupled, signal: call.abort.signal, trace: origin?.trace };
    void this.#host.infer(request, receive, options).finally(() => {
      unfollow();
      frame.release();
    });
  }

  #receive(id: number, call: OpenCall, message: CallMessage): Promise<void> | undefined {
    if (message.isFinal) this.#open.delete(id);
    if (!call.isAbandoned || message.isFinal) this.#tryReply(id, message);
    if ("response" in message) message.release();
    if (message.isFinal || call.isAbandoned || ++call.underWay < WINDOW.size) return undefined;
    return new Promise((resolve) => call.wake = resolve);
  }

  #tryReply(id: number, message: CallMessage): void {
    try {
      this.#reply(id, message);
    } catch (reason) {
      // Memory for the response cannot be had.
      const error = ServerError.from(reason, "UNAVAILABLE");
      this.#reply(id, { error, isFinal: message.isFinal });
    }
  }

  #reply(id: number, message: CallMessage): void {
    this.#frames.send((frame) => {
      frame.u8(FRAME.reply).u32(id).u8(Number(message.isFinal));
      if ("response" in message) writeReply(frame, message.response);
      else if ("error" in message) writeError(frame, message.error);
      else frame.u8(OUTCOME.none);
    });
  }

  /** The model took so many responses of a call. */
  taken(id: number, count: number): void {
    const call = this.#open.get(id);
    if (call === undefined) return;
    call.underWay -= count;
    if (call.underWay < WINDOW.size) call.wake?.();
  }

  /** The model wants a call to end; it still takes what comes until then, unless it has abandoned it. */
  cancel(id: number, isAbandoned: boolean): void {
    const call = this.#open.get(id);
    if (call === undefined) return;
    call.isAbandoned ||= isAbandoned;
    call.abort.abort();
    if (call.isAbandoned) call.wake?.();
  }

  /** Gives up all calls: the Worker is gone. */
  cancelAll(): void {
    for (const id of [...this.#open.keys()]) this.cancel(id, true);
  }
}

function follow(signal: CancelSignal | undefined, abort: AbortController): () => void {
  if (signal === undefined) return () => {};
  const listener = () => abort.abort();
  if (signal.aborted) listener();
  signal.addEventListener("abort", listener);
  return () => signal.removeEventListener("abort", listener);
}

function readCall(reader: FrameReader): InferRequest {
  const modelName = reader.text();
  const modelVersion = reader.text();
  const id = reader.text();
  const correlationId = reader.correlationId();
  const flags = reader.u8();
  const priority = reader.f64();
  const timeoutUs = reader.f64();
  const parameters = reader.parameters();
  const outputs = reader.texts().map((name) => ({ name, classificationCount: 0 }));
  const inputs = Array.from({ length: reader.u32() }, () => reader.tensor(reader.text()));
  const sequenceStart = (flags & 1) !== 0;
  const sequenceEnd = (flags & 2) !== 0;
  return {
    modelName,
    modelVersion,
    id,
    correlationId,
    sequenceStart,
    sequenceEnd,
    priority,
    timeoutUs,
    parameters,
    inputs,
    outputs,
  };
}

type Frame = Parameters<Parameters<FrameSender["send"]>[0]>[0];

function writeReply(frame: Frame, response: InferResponse): void {
  frame.u8(OUTCOME.response).text(response.modelName).text(response.modelVersion);
  frame.text(response.id).parameters(response.parameters).u32(response.outputs.length);
  for (const { name, datatype, shape, data } of response.outputs) {
    frame.text(name).tensor(datatype, shape, data);
  }
}

function writeError(frame: Frame, { code, message }: ServerError): void {
  frame.u8(OUTCOME.error).text(code).text(message);
}
