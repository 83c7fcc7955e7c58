import type {
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { type ExecutingSession, KeptExecutions } from "../process/kept_executions.ts";
import { KeptProcess, type KeptProcessParts, type Started } from "../process/kept_process.ts";
import type { Readiness } from "./is_ready_query.ts";
import { executeError } from "./execute_error.ts";

/** The part of a session that an instance uses. */
export interface InstanceSession extends ExecutingSession {
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
  readonly #executions: KeptExecutions;
  #isDisposed = false;

  private constructor(parts: InstanceParts, placement: InstancePlacement, started: StartedModel) {
    this.#parts = parts;
    this.placement = placement;
    const { name } = placement;
    const kept = this.#kept = new KeptProcess({ ...parts, name }, started);
    const deathError = () => executeError(name, this.#deathText());
    this.#executions = new KeptExecutions({ ...parts, kept, deathError });
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
    return this.#executions.execute(requests);
  }

  takesAhead(request: ExecuteRequest): boolean {
    return this.#executions.takesAhead(request);
  }

  async isReady(): Promise<Readiness> {
    const { session, hasIsReady } = this.#kept.current;
    if (session.isOver) return { isReady: false, reason: this.#deathText() };
    return hasIsReady ? await session.isReady() : { isReady: true };
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
