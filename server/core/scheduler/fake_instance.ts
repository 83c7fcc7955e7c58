import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../../../backends/backend.ts";
import type { Clock } from "../clock.ts";

/** One execution that a fake instance was asked for. */
export interface FakeExecution {
  readonly atMs: number;
  readonly instance: string;
  readonly ids: readonly string[];
  readonly rows: number;
  readonly requests: readonly ExecuteRequest[];
}

/** How fake instances behave. */
export interface FakeInstanceOptions {
  readonly clock: Clock;
  /** Virtual time one execution takes; a list is used up one by one, the last value again and again. */
  readonly executeMs: readonly number[];
  /** What becomes of a request; by default its inputs come back as outputs. */
  readonly outcome?: (request: ExecuteRequest) => ExecuteOutcome;
  /** Makes the whole execution fail when it returns an error. */
  readonly failure?: (requests: readonly ExecuteRequest[]) => unknown;
  /** Where executions are noted. */
  readonly executions: FakeExecution[];
}

/** An instance for tests: takes virtual time, notes what it runs, complains when it is asked to run twice. */
export class FakeInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #options: FakeInstanceOptions;
  #isBusy = false;
  isDisposed = false;

  constructor(name: string, options: FakeInstanceOptions) {
    this.placement = { name, kind: "KIND_CPU", deviceId: 0 };
    this.#options = options;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    if (this.#isBusy || this.isDisposed) throw new TypeError("Instance is busy or disposed");
    const { clock, executeMs, executions, failure } = this.#options;
    this.#isBusy = true;
    const durationMs = executeMs[Math.min(executions.length, executeMs.length - 1)] ?? 0;
    executions.push({
      atMs: clock.now(),
      instance: this.placement.name,
      ids: requests.map(({ id }) => id),
      rows: requests.reduce((sum, { batchSize }) => sum + batchSize, 0),
      requests,
    });
    return new Promise((resolve, reject) => {
      clock.setTimer(durationMs, () => {
        this.#isBusy = false;
        const error = failure?.(requests);
        if (error !== undefined) reject(error);
        else resolve(this.#report(requests));
      });
    });
  }

  #report(requests: readonly ExecuteRequest[]): ExecuteReport {
    const now = this.#options.clock.now();
    const outcome = this.#options.outcome ?? (({ inputs }) => ({ outputs: inputs }));
    return { outcomes: requests.map(outcome), inputEndMs: now, outputStartMs: now };
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.isDisposed = true;
    return Promise.resolve();
  }
}
