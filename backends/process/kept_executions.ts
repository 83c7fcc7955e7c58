import type { ServerError } from "../../proto/status.ts";
import type { ExecuteReport, ExecuteRequest } from "../backend.ts";
import type { Timers } from "../pause.ts";
import type { KeptSession, Started } from "./kept_process.ts";

/** A process that runs batches. */
export interface ExecutingSession extends KeptSession {
  takesAhead(request: ExecuteRequest): boolean;
  /** Undefined when the process ended before the batch began. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined>;
}

/** What batches are run with. */
export interface KeptExecutionsParts {
  /** The process that is kept up. */
  readonly kept: { readonly current: Started<ExecutingSession>; whenUp(): Promise<boolean> };
  /** `execute` may take so long; 0 = any time. */
  readonly executeTimeoutMs: number;
  readonly timers: Timers;
  readonly now: () => number;
  /** What requests are told when there is no process. */
  readonly deathError: () => ServerError;
}

/** Runs batches on a process that is kept up: what it had not begun when it died runs on the next one. */
export class KeptExecutions {
  readonly #parts: KeptExecutionsParts;

  constructor(parts: KeptExecutionsParts) {
    this.#parts = parts;
  }

  /** Runs a batch. Never rejects. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { kept, executeTimeoutMs } = this.#parts;
    const { session } = kept.current;
    if (session.isOver) return this.#executeAfterRestart(requests);
    const running = session.execute(requests);
    const report = executeTimeoutMs === 0 ? running : this.#bounded(session, running);
    // One that waited behind another one that ended the process runs on the next one.
    return report.then((report) => report ?? this.#executeAfterRestart(requests));
  }

  takesAhead(request: ExecuteRequest): boolean {
    const { kept, executeTimeoutMs } = this.#parts;
    return executeTimeoutMs === 0 && kept.current.session.takesAhead(request);
  }

  async #bounded(
    session: ExecutingSession,
    report: Promise<ExecuteReport | undefined>,
  ): Promise<ExecuteReport | undefined> {
    const { executeTimeoutMs, timers } = this.#parts;
    const reason = `execute() did not return within ${
      executeTimeoutMs / 1000
    } s (execute-timeout-seconds)`;
    const timer = timers.setTimer(executeTimeoutMs, () => session.kill(reason));
    try {
      return await report;
    } finally {
      timer.cancel();
    }
  }

  async #executeAfterRestart(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { kept, deathError } = this.#parts;
    if (await kept.whenUp()) return await this.execute(requests);
    const error = deathError();
    const now = this.#parts.now();
    return { outcomes: requests.map(() => ({ error })), inputEndMs: now, outputStartMs: now };
  }
}
