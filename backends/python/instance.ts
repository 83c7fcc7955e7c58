import type {
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import {
  KeptProcess,
  type KeptProcessParts,
  type KeptSession,
  type Started,
} from "../process/kept_process.ts";
import type { Readiness } from "./is_ready_query.ts";
import { executeError } from "./execute_error.ts";

/** The part of a session that an instance uses. */
export interface InstanceSession extends KeptSession {
  takesAhead(request: ExecuteRequest): boolean;
  /** Undefined when the process ended before the batch began. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined>;
  isReady(): Promise<Readiness>;
  finalize(timeoutMs: number): Promise<void>;
}

/** A process whose model is initialized. */
export interface StartedModel extends Started<InstanceSession> {
  readonly hasIsReady: boolean;
}

/** What an instance works with. */
export interface InstanceParts extends Omit<KeptProcessParts<StartedModel>, "name"> {
  /** `execute` may take so long; 0 = any time. */
  readonly executeTimeoutMs: number;
  readonly finalizeTimeoutMs: number;
}

/** One process that runs a model; it is started again when it dies. */
export class PythonInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: InstanceParts;
  readonly #kept: KeptProcess<StartedModel>;
  #isDisposed = false;

  private constructor(parts: InstanceParts, placement: InstancePlacement, started: StartedModel) {
    this.#parts = parts;
    this.placement = placement;
    this.#kept = new KeptProcess({ ...parts, name: placement.name }, started);
  }

  /** @throws ServerError with the model's own words when it cannot be initialized. */
  static async create(
    parts: InstanceParts,
    placement: InstancePlacement,
  ): Promise<PythonInstance> {
    const never = new AbortController();
    return new PythonInstance(parts, placement, await parts.start(never.signal));
  }

  /** It has died too often, or once where none is started again. */
  get hasGivenUp(): boolean {
    return this.#kept.hasGivenUp;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { session } = this.#kept.current;
    if (session.isOver) return this.#executeAfterRestart(requests);
    const running = session.execute(requests);
    const report = this.#parts.executeTimeoutMs === 0 ? running : this.#bounded(session, running);
    // One that waited behind another one that ended the process runs on the next one.
    return report.then((report) => report ?? this.#executeAfterRestart(requests));
  }

  takesAhead(request: ExecuteRequest): boolean {
    return this.#parts.executeTimeoutMs === 0 && this.#kept.current.session.takesAhead(request);
  }

  async isReady(): Promise<Readiness> {
    const { session, hasIsReady } = this.#kept.current;
    if (session.isOver) return { isReady: false, reason: this.#deathText() };
    return hasIsReady ? await session.isReady() : { isReady: true };
  }

  async #bounded(
    session: InstanceSession,
    report: Promise<ExecuteReport | undefined>,
  ): Promise<ExecuteReport | undefined> {
    const { executeTimeoutMs, timers } = this.#parts;
    const timer = timers.setTimer(
      executeTimeoutMs,
      () =>
        session.kill(
          `execute() did not return within ${executeTimeoutMs / 1000} s (execute-timeout-seconds)`,
        ),
    );
    try {
      return await report;
    } finally {
      timer.cancel();
    }
  }

  async #executeAfterRestart(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    if (await this.#kept.whenUp()) return await this.execute(requests);
    const error = executeError(this.placement.name, this.#deathText());
    const now = this.#parts.now();
    return { outcomes: requests.map(() => ({ error })), inputEndMs: now, outputStartMs: now };
  }

  #deathText(): string {
    return `Stub process '${this.placement.name}' is not healthy.`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    await this.#kept.stop();
    const { session } = this.#kept.current;
    if (session.isOver) await session.ended;
    else await session.finalize(this.#parts.finalizeTimeoutMs);
  }
}
