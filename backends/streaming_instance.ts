import { ServerError } from "../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "./backend.ts";
import type { ExecutionPace } from "./execution_pace.ts";
import { pause, type Timers } from "./pause.ts";
import { type ResponseStream, sendResponses } from "./response_stream.ts";

/** What the answer to one request is: its responses, and how long the instance stays occupied. */
export interface StreamPlan {
  readonly stream: ResponseStream;
  /** Milliseconds until the next request may be executed; the stream goes on meanwhile. */
  readonly occupiedMs: number;
}

interface StreamingParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  readonly timers: Timers;
  /** @throws ServerError for a request that gets no stream. */
  readonly plan: (request: ExecuteRequest) => StreamPlan;
}

/** An instance of a decoupled test model: responses are sent while it takes the next requests. */
export class StreamingInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: StreamingParts;
  readonly #streams = new Set<Promise<void>>();

  constructor(placement: InstancePlacement, parts: StreamingParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now, timers } = this.#parts;
    const inputEndMs = now();
    await pace.delay(this.placement, requests);
    const outputStartMs = now();
    let occupiedMs = 0;
    const outcomes = requests.map((request): ExecuteOutcome => {
      const error = pace.failure(request);
      if (error !== undefined) return { error };
      try {
        const plan = this.#parts.plan(request);
        occupiedMs = Math.max(occupiedMs, plan.occupiedMs);
        this.#start(request, plan.stream);
        return { streamed: true };
      } catch (reason) {
        return { error: ServerError.from(reason) };
      }
    });
    if (occupiedMs > 0) {
      const signals = requests.map(({ signal }) => signal);
      await pause(occupiedMs, { timers, signals });
    }
    return { outcomes, inputEndMs, outputStartMs };
  }

  #start(request: ExecuteRequest, stream: ResponseStream): void {
    const running = sendResponses(request, stream, this.#parts)
      .finally(() => this.#streams.delete(running));
    this.#streams.add(running);
  }

  /** Waits for the streams under way: the requests are in flight until they end. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#streams);
  }
}
