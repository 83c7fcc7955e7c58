import type { ExecuteOutcome, ExecuteRequest } from "../../../backends/backend.ts";
import type { CancelSignal, ParameterValue } from "../../../proto/infer.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";

/** Why a request failed, as in the `reason` label of the failure counter (observability.md §1.2). */
export type FailureReason = "REJECTED" | "CANCELED" | "BACKEND" | "OTHER";

/** Where a request is: not yet accepted, waiting, handed to an instance, or answered. */
export type JobState = "new" | "queued" | "executing" | "done";

/** What a job is made from: a checked request. */
export interface JobOptions {
  readonly id: string;
  readonly correlationId: bigint | string;
  readonly batchSize: number;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly string[];
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly signal: CancelSignal | undefined;
  /** Priority level the client asked for; 0 = the model's default. */
  readonly priority: number;
  /** Queue timeout the client asked for, microseconds; 0 = none. */
  readonly timeoutUs: number;
  /** When the core received the request, ms of the clock. */
  readonly startMs: number;
  /** Called exactly once, with the outcome of an accepted job. */
  readonly onDone: (job: Job, outcome: ExecuteOutcome) => void;
}

/**
 * One request on its way through a scheduler. It is the backend's `ExecuteRequest` itself, so that handing a batch to
 * an instance allocates nothing, and the node of the list it waits in, so that it can be removed in constant time.
 */
export class Job implements ExecuteRequest {
  readonly id: string;
  readonly correlationId: bigint | string;
  readonly batchSize: number;
  readonly outputs: readonly string[];
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly signal: CancelSignal | undefined;
  readonly priority: number;
  readonly timeoutUs: number;
  readonly startMs: number;
  inputs: readonly Tensor[];
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
  readonly #onDone: (job: Job, outcome: ExecuteOutcome) => void;
  #onAbort: (() => void) | undefined;

  constructor(options: JobOptions) {
    this.id = options.id;
    this.correlationId = options.correlationId;
    this.batchSize = options.batchSize;
    this.inputs = options.inputs;
    this.outputs = options.outputs;
    this.parameters = options.parameters;
    this.signal = options.signal;
    this.priority = options.priority;
    this.timeoutUs = options.timeoutUs;
    this.startMs = options.startMs;
    this.#onDone = options.onDone;
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

  /** Answers the request. A job that was answered already is left alone. */
  finish(outcome: ExecuteOutcome): void {
    if (this.state === "done") return;
    this.state = "done";
    this.unwatch();
    this.outcome = undefined;
    // Queues and heaps may hold an answered job a little longer; the caller's buffers they must not hold.
    this.inputs = NO_INPUTS;
    this.#onDone(this, outcome);
  }
}

const NO_INPUTS: readonly Tensor[] = [];

/** `[request id: X] `, the start of most texts about one request (http.md §9.8). */
export function requestPrefix(id: string): string {
  return `[request id: ${id === "" ? "<id_unknown>" : id}] `;
}

/** The error of a request whose client has gone; the reference's text is empty. */
export function cancelledError(): ServerError {
  return new ServerError("CANCELLED", "");
}
