import type { ExecuteRequest } from "../backend.ts";

/** So many batches may be with the process: one that runs and those that wait in its socket. */
const AHEAD_COUNT_MAX = 8;
/** None is given ahead of its turn when executions take longer than this, or the one that runs has taken as long. */
const SHORT_EXECUTION_MS = 1;
const CURRENT_EXECUTION_MS = 2;
/** A new measurement's share of the mean duration. */
const MEAN_SHARE = 0.25;
/** Larger tensors take room in the shared memory, which a request that runs may need. */
const AHEAD_BYTE_SIZE_MAX = 16 * 1024;

/** Decides whether requests are sent behind the one that runs: when a process would sleep and be woken in between. */
export class AheadPace {
  readonly #now: () => number;
  /** Of an execution, as the process measures it; large until there was one. */
  #meanMs = Infinity;
  /** When the batch that runs began, as far as that is seen here. */
  #currentMs = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** `runningCount`: batches that the process has. */
  takes({ inputs }: ExecuteRequest, runningCount: number): boolean {
    if (this.#meanMs > SHORT_EXECUTION_MS || runningCount >= AHEAD_COUNT_MAX) return false;
    if (this.#now() - this.#currentMs > CURRENT_EXECUTION_MS) return false;
    return inputs.every(({ data }) => data.byteLength <= AHEAD_BYTE_SIZE_MAX);
  }

  begun(): void {
    this.#currentMs = this.#now();
  }

  /** A batch has ended, and the next one begins if there is one. */
  ended(durationMs: number): void {
    this.#currentMs = this.#now();
    this.#meanMs = this.#meanMs === Infinity
      ? durationMs
      : this.#meanMs + MEAN_SHARE * (durationMs - this.#meanMs);
  }
}
