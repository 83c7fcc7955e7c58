import { ServerError } from "../../proto/status.ts";
import type {
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { type ExecutingSession, KeptExecutions } from "../process/kept_executions.ts";
import { KeptProcess, type KeptProcessParts, type Started } from "../process/kept_process.ts";
import type { Readiness } from "./isolated_process.ts";

/** The part of a process that an instance uses. */
export interface InstanceSession extends ExecutingSession {
  isReady(): Promise<Readiness>;
  close(timeoutMs: number): Promise<void>;
}

/** A process whose instance is created. */
export interface StartedInstance extends Started<InstanceSession> {
  readonly hasIsReady: boolean;
}

/** What an instance works with. */
export interface IsolatedInstanceParts extends KeptProcessParts<StartedInstance> {
  /** `execute` may take so long; 0 = any time. */
  readonly executeTimeoutMs: number;
  /** The end of the process may take so long. */
  readonly closeTimeoutMs: number;
}

/** Readiness is asked of the model within this time. */
const READY_TIMEOUT_MS = 5000;

/** An instance in a process of its own, which is started again when it dies. */
export class IsolatedInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: IsolatedInstanceParts;
  readonly #kept: KeptProcess<StartedInstance>;
  readonly #executions: KeptExecutions;
  #readiness: Promise<Readiness> | undefined;
  #isDisposed = false;

  constructor(
    parts: IsolatedInstanceParts,
    placement: InstancePlacement,
    first: StartedInstance,
  ) {
    this.#parts = parts;
    this.placement = placement;
    const kept = this.#kept = new KeptProcess(parts, first);
    const deathError = () => new ServerError("UNAVAILABLE", this.#deathText());
    this.#executions = new KeptExecutions({ ...parts, kept, deathError });
  }

  get hasGivenUp(): boolean {
    return this.#kept.hasGivenUp;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    return this.#executions.execute(requests);
  }

  takesAhead(request: ExecuteRequest): boolean {
    return this.#executions.takesAhead(request);
  }

  async isReady(): Promise<Readiness> {
    const { session, hasIsReady } = this.#kept.current;
    if (session.isOver) return { isReady: false, reason: this.#deathText() };
    if (!hasIsReady) return { isReady: true };
    this.#readiness ??= this.#askReady(session).finally(() => this.#readiness = undefined);
    return await this.#readiness;
  }

  async #askReady(session: InstanceSession): Promise<Readiness> {
    const late = Promise.withResolvers<Readiness>();
    const reason = `no answer of the process within ${READY_TIMEOUT_MS / 1000} s`;
    const timer = this.#parts.timers.setTimer(
      READY_TIMEOUT_MS,
      () => late.resolve({ isReady: false, reason }),
    );
    try {
      return await Promise.race([session.isReady(), late.promise]);
    } catch (error) {
      return { isReady: false, reason: ServerError.from(error).message };
    } finally {
      timer.cancel();
    }
  }

  #deathText(): string {
    const { name } = this.placement;
    return this.#kept.hasGivenUp
      ? `the process of instance '${name}' has died too often and is not started again: load the ` +
        `model again when the cause is mended (the log tells how it died)`
      : `the process of instance '${name}' has died and is about to be started again`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    await this.#kept.stop();
    const { session } = this.#kept.current;
    if (session.isOver) await session.ended;
    else await session.close(this.#parts.closeTimeoutMs);
  }
}
