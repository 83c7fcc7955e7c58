import type { ModelConfig } from "../proto/gen/model_config_pb.ts";
import { ServerError } from "../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
} from "./backend.ts";
import { readCountParameter, readNumberParameter } from "./model_parameters.ts";
import { pause, type Timers } from "./pause.ts";

/** What executes a batch at a pace. */
export interface PacedExecution {
  readonly placement: InstancePlacement;
  readonly now: () => number;
  /** Answers one request, by its place in the batch. */
  readonly answer: (request: ExecuteRequest, index: number) => ExecuteOutcome;
}

/**
 * How fast and how reliably a test model executes, by the parameters of its configuration: `execute_delay_ms` (once
 * per batch), `instance_wise_delay_multiplier` (times the index of the instance in its group, at least 1), and
 * `fail_every` (every so many requests of the model one fails). One per model, shared by its instances.
 */
export class ExecutionPace {
  readonly #delayMs: number;
  readonly #delayMultiplier: number;
  readonly #failEvery: number;
  readonly #timers: Timers;
  #requestCount = 0;

  /** @throws ServerError INVALID_ARG naming a parameter that is no number from 0 on. */
  constructor(config: ModelConfig, timers: Timers) {
    this.#delayMs = readNumberParameter(config, "execute_delay_ms");
    this.#delayMultiplier = readNumberParameter(config, "instance_wise_delay_multiplier");
    this.#failEvery = readCountParameter(config, "fail_every");
    this.#timers = timers;
  }

  /** The time of one execution; over early when all clients have gone. Undefined when it takes none. */
  delay(
    placement: InstancePlacement,
    requests: readonly ExecuteRequest[],
  ): Promise<void> | undefined {
    if (this.#delayMs <= 0) return undefined;
    const delayMs = this.#delayMs * Math.max(this.#delayMultiplier * indexOf(placement), 1);
    const signals = requests.map(({ signal }) => signal);
    return pause(delayMs, { timers: this.#timers, signals });
  }

  /** One execution: takes its time, then answers each request for itself. */
  async execute(
    requests: readonly ExecuteRequest[],
    { placement, now, answer }: PacedExecution,
  ): Promise<ExecuteReport> {
    const inputEndMs = now();
    const delay = this.delay(placement, requests);
    if (delay !== undefined) await delay;
    const outputStartMs = now();
    return { outcomes: requests.map(answer), inputEndMs, outputStartMs };
  }

  /** Counts a request; its error when it must fail. Call it once per request, after the delay. */
  failure(request: ExecuteRequest): ServerError | undefined {
    const requestNumber = ++this.#requestCount;
    if (this.#delayMs > 0 && request.signal?.aborted) {
      return new ServerError("CANCELLED", "Request cancelled while it was executed");
    }
    if (this.#failEvery === 0 || requestNumber % this.#failEvery !== 0) return undefined;
    const message = `request ${requestNumber} fails: parameter 'fail_every' is ${this.#failEvery}`;
    return new ServerError("INTERNAL", message);
  }
}

/** Which instance of its group it is, from 0. */
function indexOf({ name }: InstancePlacement): number {
  return Number(/_(\d+)$/.exec(name)?.[1] ?? 0);
}
