import type { Tensor } from "../../proto/tensor.ts";
import type { RequestTrace } from "./inference_api.ts";
import { fromHex, toHex, type TraceContext } from "./trace_context.ts";
import { formatTensor, type TensorText } from "./trace_tensor.ts";

/** What one trace of a request may hold; what comes later is left out. */
const MAX_EVENTS = 10_000;
/** Requests that one traced request may cause and that are traced as well. */
const MAX_TRACES = 10_000;
/** Characters of tensors that one traced request may hold. */
const MAX_TENSOR_CHARACTERS = 64 * 1024 * 1024;

/** Bytes at random, for the ids of spans. */
export type RandomBytes = (byteCount: number) => Uint8Array;

/** A point of time, ms of the clock, or the tensor that was seen there. */
export interface TraceEvent {
  readonly name: string;
  readonly atMs: number;
  readonly tensor?: TensorText;
}

/** What a traced request and the requests it causes have in common. */
export interface TraceRecordOptions {
  readonly timestamps: boolean;
  readonly tensors: boolean;
  /** Gives each trace its id. */
  readonly nextId: () => number;
  readonly now: () => number;
  /** Of the client's own trace, if it told one. */
  readonly context?: TraceContext | undefined;
  /** Fills the ids of spans; absent = the trace is not one of spans, and models are told no context of it. */
  readonly randomBytes?: RandomBytes | undefined;
  /** Called once, when nothing of the request is left to happen. */
  readonly onComplete: (record: TraceRecord) => void;
}

/** Everything that is recorded of one request: its own trace, and those of the requests it causes. */
export class TraceRecord {
  readonly options: TraceRecordOptions;
  readonly root: Trace;
  /** Traces of requests that reached a model, in that order; the first is the root, if it did. */
  readonly begun: Trace[] = [];
  #holdCount = 0;
  #tensorCharacters = 0;
  #traceId: Uint8Array | undefined;

  constructor(options: TraceRecordOptions) {
    this.options = options;
    this.root = new Trace(this, undefined);
    this.hold();
  }

  /** Nothing is left to happen: what comes now comes too late. */
  get isComplete(): boolean {
    return this.#holdCount === 0;
  }

  /** Something is left to happen. */
  hold(): void {
    this.#holdCount++;
  }

  release(): void {
    if (--this.#holdCount === 0) this.options.onComplete(this);
  }

  /** The trace that its spans belong to, 16 bytes: the client's, if it told one. */
  traceId(randomBytes: RandomBytes): Uint8Array {
    const { context } = this.options;
    return this.#traceId ??= context === undefined ? randomBytes(16) : fromHex(context.traceId);
  }

  /** The text of a tensor, while there is room for it. */
  textOf(tensor: Tensor): TensorText | undefined {
    const text = formatTensor(tensor, MAX_TENSOR_CHARACTERS - this.#tensorCharacters);
    if (text !== undefined) this.#tensorCharacters += text.data.length;
    return text;
  }
}

/** The trace of one request, from the frontend or caused by another one (observability.md §5.3). */
export class Trace implements RequestTrace {
  readonly id: number;
  readonly parent: Trace | undefined;
  readonly record: TraceRecord;
  readonly events: TraceEvent[] = [];
  modelName = "";
  modelVersion = "";
  requestId = "";
  #isRunning = false;
  #isEnded = false;
  #spanId: Uint8Array | undefined;

  constructor(record: TraceRecord, parent: Trace | undefined) {
    this.record = record;
    this.parent = parent;
    this.id = record.options.nextId();
  }

  /** The id of its span, 8 bytes. */
  spanId(randomBytes: RandomBytes): Uint8Array {
    return this.#spanId ??= randomBytes(8);
  }

  /** The W3C context of its span as JSON text: what a model passes on becomes a child of it. */
  get context(): string | undefined {
    const { randomBytes, context } = this.record.options;
    if (randomBytes === undefined) return undefined;
    const [traceId, spanId] = [this.record.traceId(randomBytes), this.spanId(randomBytes)];
    const traceparent = `00-${toHex(traceId)}-${toHex(spanId)}-01`;
    const state = context?.state ?? "";
    return JSON.stringify(state === "" ? { traceparent } : { traceparent, tracestate: state });
  }

  mark(activity: string, atMs: number = this.record.options.now()): void {
    if (!this.record.options.timestamps || this.events.length >= MAX_EVENTS) return;
    this.events.push({ name: activity, atMs });
  }

  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.record.release();
  }

  /** The trace of a request that this one causes; undefined when there are too many, or all of it was written. */
  createChild(): Trace | undefined {
    if (this.record.isComplete || this.record.begun.length >= MAX_TRACES) return undefined;
    return new Trace(this.record, this);
  }

  /** A model takes the request; `finish()` must be called once. */
  begin(model: { name: string; version: string; requestId: string; startMs: number }): void {
    if (this.record.isComplete) return;
    this.modelName = model.name;
    this.modelVersion = model.version;
    this.requestId = model.requestId;
    this.#isRunning = true;
    this.record.hold();
    this.record.begun.push(this);
    this.mark("REQUEST_START", model.startMs);
    this.mark("QUEUE_START", model.startMs);
  }

  /** A response of the request was handed to the frontend. */
  responded(): void {
    if (this.parent === undefined) this.mark("INFER_RESPONSE_COMPLETE");
  }

  /** An instance has run the request; ms of the clock. */
  executed(times: {
    readonly startMs: number;
    readonly inputEndMs: number;
    readonly outputStartMs: number;
    readonly endMs: number;
  }): void {
    this.mark("COMPUTE_START", times.startMs);
    this.mark("COMPUTE_INPUT_END", times.inputEndMs);
    this.mark("COMPUTE_OUTPUT_START", times.outputStartMs);
    this.mark("COMPUTE_END", times.endMs);
  }

  /** Tensors as they are at this point; their bytes are not kept. */
  tensors(activity: string, tensors: readonly Tensor[]): void {
    if (!this.record.options.tensors) return;
    for (const tensor of tensors) {
      if (this.events.length >= MAX_EVENTS) return;
      const text = this.record.textOf(tensor);
      if (text === undefined) continue;
      this.events.push({ name: activity, atMs: this.record.options.now(), tensor: text });
    }
  }

  /** The request has ended; further calls do nothing. */
  finish(): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    this.mark("REQUEST_END");
    this.record.release();
  }
}

/** The trace among the options of a call; what is not ours is no trace. */
export function traceOf(trace: RequestTrace | undefined): Trace | undefined {
  return trace instanceof Trace ? trace : undefined;
}
