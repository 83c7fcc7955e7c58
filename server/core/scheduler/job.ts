import type {
  ExecuteOutcome,
  ExecuteRequest,
  ExecuteResponse,
  InstancePlacement,
  OutputTargets,
} from "../../../backends/backend.ts";
import type { CancelSignal, ParameterValue } from "../../../proto/infer.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { HeldResponses } from "./held_responses.ts";
import type { ExecuteTimes } from "./instance_pool.ts";
import type { JobList } from "./job_list.ts";
import type { Trace } from "../trace.ts";

/** Why a request failed, as in the `reason` label of the failure counter (observability.md §1.2). */
export type FailureReason = "REJECTED" | "CANCELED" | "BACKEND" | "OTHER";

/** Where a request is: not yet accepted, waiting, handed to an instance, or answered. */
export type JobState = "new" | "queued" | "executing" | "done";

/** Durations of the requests of an ensemble's steps, added up, ms. */
export interface ComputeSums {
  inputMs: number;
  inferMs: number;
  outputMs: number;
}

/** What a job is made from: a checked request. */
export interface JobOptions {
  readonly id: string;
  readonly correlationId: bigint | string;
  readonly batchSize: number;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly string[];
  /** Where outputs are wanted, when instances may write there. */
  readonly targets?: OutputTargets | undefined;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly sequenceStart?: boolean;
  readonly sequenceEnd?: boolean;
  readonly signal: CancelSignal | undefined;
  /** Priority level the client asked for; 0 = the model's default. */
  readonly priority: number;
  /** Queue timeout the client asked for, microseconds; 0 = none. */
  readonly timeoutUs: number;
  /** When the core received the request, ms of the clock. */
  readonly startMs: number;
  /** Of a step of an ensemble: where its durations are added up. */
  readonly compute?: ComputeSums | undefined;
  /** A request in flight needs it: schedulers that were stopped take it nevertheless. */
  readonly isCall?: boolean | undefined;
  /** Of a request that is traced. */
  readonly trace?: Trace | undefined;
  /**
   * Called exactly once, when an accepted job is over: with its one response, or with `undefined` when all its
   * responses went to `onResponse`.
   */
  readonly onDone: (job: Job, response: ExecuteResponse | undefined) => void;
  /** Takes what the model sends through `send`; absent = only one response can be taken, `onDone` gets it. */
  readonly onResponse?: (
    response: ExecuteResponse | undefined,
    isFinal: boolean,
  ) => Promise<void> | undefined;
  /** Without `onResponse`: of several responses the first is taken; else it is an error that there are several. */
  readonly takesFirst?: boolean;
}

/** Who is told of responses as the model sends them: the statistics. */
export interface ResponseObserver {
  /** The model sent a response; `undefined` = a flag without one. `job.responseCount` counts those before it. */
  responded(job: Job, response: ExecuteResponse | undefined): void;
  /** A job whose `executeTimes` were set is over; with the error that was its end, if it was one. */
  ended(job: Job, failure: ServerError | undefined): void;
}

/**
 * One request on its way through a scheduler. It is the backend's `ExecuteRequest` itself, so that handing a batch to
 * an instance allocates nothing, and the node of the list it waits in, so that it can be removed in constant time.
 */
export class Job implements ExecuteRequest {
  readonly id: string;
  readonly batchSize: number;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly targets: OutputTargets | undefined;
  readonly signal: CancelSignal | undefined;
  readonly priority: number;
  readonly timeoutUs: number;
  readonly startMs: number;
  readonly compute: ComputeSums | undefined;
  readonly isCall: boolean;
  readonly trace: Trace | undefined;
  /** Schedulers add control inputs, states and state outputs. */
  inputs: readonly Tensor[];
  outputs: readonly string[];
  /** An iterative sequence gives its requests an id and the flags of each turn. */
  correlationId: bigint | string;
  sequenceStart: boolean;
  sequenceEnd: boolean;
  state: JobState = "new";
  /** When the scheduler accepted it. */
  queueStartMs = 0;
  /** When it times out in the queue; Infinity = never. */
  deadlineMs = Infinity;
  /** Priority level it waits in. */
  level = 0;
  /** Neighbours and owner while it waits in a list; kept by `JobList`. */
  previous: Job | undefined;
  next: Job | undefined;
  list: object | undefined;
  /** Place in the heap of deadlines, -1 = none; kept by `DeadlineHeap`. */
  heapIndex = -1;
  /** The outcome while a scheduler holds it back to preserve order. */
  outcome: ExecuteOutcome | undefined;
  /** Told of the responses; kept by the pool that runs the job. */
  observer: ResponseObserver | undefined;
  /** When its execution began, ms, and where; kept by the pool. */
  executeStartMs = 0;
  placement: InstancePlacement | undefined;
  /** Its last execution, when that left the job unfinished; kept by the observer. */
  executeTimes: ExecuteTimes | undefined;
  /** Responses sent so far, and when the last of them was, ms; kept by the observer. */
  responseCount = 0;
  lastResponseMs = 0;
  /** The sequence it belongs to; kept by the sequence batcher. */
  sequence: JobList | undefined;
  /** The model may ask for another turn (iterative sequences). */
  mayReschedule = false;
  /** Sees the response of an accepted job before whoever sent the request; kept by the response cache. */
  beforeFinish: ((response: ExecuteResponse | undefined) => void) | undefined;
  /** Fills the place of a sequence that has nothing to do; nobody waits for it and nothing of it is counted. */
  isNull = false;
  readonly #onDone: JobOptions["onDone"];
  readonly #onResponse: JobOptions["onResponse"];
  readonly #takesFirst: boolean;
  /** The response of a job that can take only one, until the model says that it was the last. */
  #single: ExecuteResponse | undefined;
  #singleCount = 0;
  #isFinalSent = false;
  #onFinalSent: (() => void) | undefined;
  /** The error that came with the final flag. */
  #failure: ServerError | undefined;
  /** What was sent before it was the turn of this job. */
  #held: HeldResponses | undefined;
  #onAbort: (() => void) | undefined;

  constructor(options: JobOptions) {
    this.id = options.id;
    this.correlationId = options.correlationId;
    this.batchSize = options.batchSize;
    this.inputs = options.inputs;
    this.outputs = options.outputs;
    this.parameters = options.parameters;
    this.signal = options.signal;
    this.targets = options.targets;
    this.priority = options.priority;
    this.timeoutUs = options.timeoutUs;
    this.startMs = options.startMs;
    this.compute = options.compute;
    this.isCall = options.isCall ?? false;
    this.trace = options.trace;
    this.sequenceStart = options.sequenceStart ?? false;
    this.sequenceEnd = options.sequenceEnd ?? false;
    this.#onDone = options.onDone;
    this.#onResponse = options.onResponse;
    this.#takesFirst = options.takesFirst ?? false;
  }

  /** The model has sent its last response; it may have to wait for its turn. */
  get isFinalSent(): boolean {
    return this.#isFinalSent;
  }

  get isAborted(): boolean {
    return this.signal !== undefined && this.signal.aborted;
  }

  /** Calls back when the client goes away while the job waits; only for jobs that have to wait. */
  watch(onAbort: (job: Job) => void): void {
    if (this.signal === undefined || this.#onAbort !== undefined) return;
    this.#onAbort = () => onAbort(this);
    this.signal.addEventListener("abort", this.#onAbort);
  }

  /** Ends watching; called when the job leaves the queue. */
  unwatch(): void {
    if (this.#onAbort === undefined) return;
    this.signal?.removeEventListener("abort", this.#onAbort);
    this.#onAbort = undefined;
  }

  send(response: ExecuteResponse | undefined, isFinal: boolean): Promise<void> | undefined {
    if (this.#isFinalSent || this.state === "done") {
      throw new TypeError("No response can be sent after the final one");
    }
    this.observer?.responded(this, response);
    if (this.trace !== undefined) this.#traceOutputs(this.trace, response);
    if (isFinal) {
      this.#isFinalSent = true;
      const isGivenUp = response === undefined && this.isAborted;
      this.#failure = isGivenUp ? cancelledError() : errorOf(response);
    }
    const isHeld = this.#held === undefined
      ? this.#deliver(response, isFinal)
      : this.#held.add(response, isFinal);
    if (isFinal) this.#onFinalSent?.();
    return isHeld;
  }

  #deliver(response: ExecuteResponse | undefined, isFinal: boolean): Promise<void> | undefined {
    if (this.#onResponse === undefined) return this.#keepSingle(response);
    return this.#onResponse(response, isFinal);
  }

  /**
   * Keeps what is sent from now on until `open()`: it is not yet the turn of this job. With `mayWait` the model is asked
   * to wait for that; without, it is not, because it may have to work for the job whose turn it is.
   */
  hold({ mayWait }: { mayWait: boolean }): void {
    // The one response of other jobs leaves with `settle`, which comes in order.
    if (this.#onResponse === undefined) return;
    this.#held ??= new HeldResponses(this.id, this.signal);
    if (!mayWait) this.#held.stopWaiting();
  }

  /** It is the turn of this job: what was held leaves now, what is sent from now on at once. */
  open(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    held.release((response, isFinal) => this.#deliver(response, isFinal));
  }

  #keepSingle(response: ExecuteResponse | undefined): undefined {
    if (response === undefined) return;
    this.#singleCount++;
    if (this.#single === undefined) {
      this.#single = response;
      return;
    }
    if (this.#takesFirst) {
      releaseOutputs(response);
      return;
    }
    // One response too many: what was promised cannot be kept any more (http.md §9.7).
    releaseOutputs(this.#single);
    releaseOutputs(response);
    this.#single = wrongCount(this.#singleCount);
  }

  /** What a job without a response ends with: its client has gone, or the model owes it one. */
  #noSingle(): ExecuteResponse {
    return this.#failure === undefined ? wrongCount(0) : { error: this.#failure };
  }

  /**
   * Answers the request with the outcome of its execution; when the model streams, as soon as the final response was
   * sent as well. `onEnd` is called once when the job is over. A job that is over already is left alone.
   */
  settle(outcome: ExecuteOutcome, onEnd: () => void): void {
    if (!("streamed" in outcome)) {
      if (!this.#isFinalSent) {
        this.finish(outcome);
        onEnd();
        return;
      }
      // Whoever has the final response takes no other.
      releaseOutputs(outcome);
    }
    const end = () => {
      this.finish(this.#onResponse === undefined ? this.#single ?? this.#noSingle() : undefined);
      onEnd();
    };
    if (this.#isFinalSent) end();
    else this.#onFinalSent = end;
  }

  /** Ends the job with its one response, or with none because all were sent. A job that is over is left alone. */
  finish(response: ExecuteResponse | undefined): void {
    if (this.state === "done") return;
    this.state = "done";
    this.unwatch();
    this.outcome = undefined;
    // Queues and heaps may hold an answered job a little longer; the caller's buffers they must not hold.
    this.inputs = NO_INPUTS;
    if (this.#single !== undefined && this.#single !== response) releaseOutputs(this.#single);
    this.#single = undefined;
    this.#onFinalSent = undefined;
    if (this.executeTimes !== undefined) {
      this.observer?.ended(this, errorOf(response) ?? this.#failure);
    }
    this.beforeFinish?.(response);
    this.#onDone(this, response);
    this.trace?.finish();
  }

  #traceOutputs(trace: Trace, response: ExecuteResponse | undefined): void {
    if (response === undefined || "error" in response) return;
    trace.tensors("TENSOR_BACKEND_OUTPUT", response.outputs);
  }
}

function wrongCount(count: number): ExecuteResponse {
  return { error: new ServerError("INTERNAL", `expected a single response, got ${count}`) };
}

function errorOf(response: ExecuteResponse | undefined): ServerError | undefined {
  return response !== undefined && "error" in response ? response.error : undefined;
}

/** Gives up a response that nobody will get. */
export function releaseOutputs(response: ExecuteResponse): void {
  if ("release" in response) response.release?.();
}

const NO_INPUTS: readonly Tensor[] = [];

/** True when an execution ended with the wish for another turn instead of an answer (scheduling.md §4.1). */
export function isRescheduled({ outcome }: Job): boolean {
  return outcome !== undefined && "streamed" in outcome && outcome.reschedule === true;
}

/** `[request id: X] `, the start of most texts about one request (http.md §9.8). */
export function requestPrefix(id: string): string {
  return `[request id: ${id === "" ? "<id_unknown>" : id}] `;
}

/** The error of a request whose client has gone; the reference's text is empty. */
export function cancelledError(): ServerError {
  return new ServerError("CANCELLED", "");
}
