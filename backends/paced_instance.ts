import { ServerError } from "../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "./backend.ts";
import type { ExecutionPace } from "./execution_pace.ts";

/** What an instance of a test model works with. */
export interface PacedParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  /** Answers one request; what it throws is the answer as well. */
  readonly answer: (request: ExecuteRequest) => ExecuteOutcome;
  /** Called when an execution has ended that began at `startMs`; absent = nobody wants to know. */
  readonly onExecuted?:
    | ((requests: readonly ExecuteRequest[], startMs: number) => void)
    | undefined;
}

/** An instance of a test model that keeps nothing: at its pace, it answers each request for itself. */
export class PacedInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: PacedParts;

  constructor(placement: InstancePlacement, parts: PacedParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now, onExecuted } = this.#parts;
    const execution = { placement: this.placement, now, answer: this.#answer };
    if (onExecuted === undefined) return pace.execute(requests, execution);
    const startMs = now();
    return pace.execute(requests, execution).then((report) => {
      onExecuted(requests, startMs);
      return report;
    });
  }

  readonly #answer = (request: ExecuteRequest): ExecuteOutcome => {
    const error = this.#parts.pace.failure(request);
    if (error !== undefined) return { error };
    try {
      return this.#parts.answer(request);
    } catch (reason) {
      return { error: ServerError.from(reason) };
    }
  };

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
