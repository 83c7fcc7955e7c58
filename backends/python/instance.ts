import { ServerError } from "../../proto/status.ts";
import type {
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import type { Timers } from "../pause.ts";
import type { RestartPace } from "../restart_pace.ts";
import type { Readiness } from "./is_ready_query.ts";
import { executeError } from "./execute_error.ts";

/** The part of a session that an instance uses. */
export interface InstanceSession {
  readonly ended: Promise<string>;
  readonly isOver: boolean;
  readonly pid: number;
  takesAhead(request: ExecuteRequest): boolean;
  /** Undefined when the process ended before the batch began. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined>;
  isReady(): Promise<Readiness>;
  finalize(timeoutMs: number): Promise<void>;
  kill(reason: string): void;
}

/** A process whose model is initialized. */
export interface StartedModel {
  readonly session: InstanceSession;
  readonly hasIsReady: boolean;
}

/** What an instance works with. */
export interface InstanceParts {
  /** Starts a process with the model; ends it and rejects when `signal` tells that nobody wants it any more. */
  readonly start: (signal: AbortSignal) => Promise<StartedModel>;
  /** Decides on restarts; undefined = a process that died stays dead. */
  readonly restartPace: RestartPace | undefined;
  /** `execute` may take so long; 0 = any time. */
  readonly executeTimeoutMs: number;
  readonly finalizeTimeoutMs: number;
  readonly timers: Timers;
  readonly now: () => number;
  readonly warn: (message: string) => void;
}

/** A restart that is nearer than this is waited for by requests, and so long at most. */
const NEAR_RESTART_MS = 1000;
const RESTART_WAIT_MS = 10_000;

/** One process that runs a model; it is started again when it dies. */
export class PythonInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: InstanceParts;
  #started: StartedModel;
  #restart: PromiseWithResolvers<void> | undefined;
  #restartTimer: { cancel(): void } | undefined;
  #starting: Promise<void> | undefined;
  #hasGivenUp = false;
  /** Aborts a start that is under way: what a model does in `initialize` has no bound in time. */
  readonly #disposal = new AbortController();

  private constructor(parts: InstanceParts, placement: InstancePlacement, started: StartedModel) {
    this.#parts = parts;
    this.placement = placement;
    this.#started = started;
    this.#watch(started);
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
    return this.#hasGivenUp;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { session } = this.#started;
    if (session.isOver) return this.#executeAfterRestart(requests);
    const running = session.execute(requests);
    const report = this.#parts.executeTimeoutMs === 0 ? running : this.#bounded(session, running);
    // One that waited behind another one that ended the process runs on the next one.
    return report.then((report) => report ?? this.#executeAfterRestart(requests));
  }

  takesAhead(request: ExecuteRequest): boolean {
    return this.#parts.executeTimeoutMs === 0 && this.#started.session.takesAhead(request);
  }

  async isReady(): Promise<Readiness> {
    const { session, hasIsReady } = this.#started;
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
    // Only then it is decided whether there is a restart.
    await this.#started.session.ended;
    const restart = this.#restart;
    if (restart !== undefined) {
      const waited = Promise.withResolvers<void>();
      const timer = this.#parts.timers.setTimer(RESTART_WAIT_MS, waited.resolve);
      await Promise.race([restart.promise, waited.promise]);
      timer.cancel();
      if (!this.#started.session.isOver) return await this.execute(requests);
    }
    const error = executeError(this.placement.name, this.#deathText());
    const now = this.#parts.now();
    return { outcomes: requests.map(() => ({ error })), inputEndMs: now, outputStartMs: now };
  }

  #watch({ session }: StartedModel): void {
    const { warn } = this.#parts;
    void session.ended.then((how) => {
      if (this.#isDisposed) return;
      warn(`the process of '${this.placement.name}' (pid ${session.pid}) has died: ${how}`);
      this.#scheduleRestart();
    });
  }

  #scheduleRestart(): void {
    const { restartPace, timers, now, warn } = this.#parts;
    if (this.#isDisposed) return this.#endRestart();
    const delayMs = restartPace?.fail(now());
    this.#hasGivenUp = delayMs === undefined;
    if (restartPace === undefined) return this.#endRestart();
    if (delayMs === undefined) {
      warn(
        `the process of '${this.placement.name}' is not started again: it has died too often. ` +
          `Load the model again when the cause is mended`,
      );
      return this.#endRestart();
    }
    if (delayMs <= NEAR_RESTART_MS) this.#restart ??= Promise.withResolvers();
    this.#restartTimer = timers.setTimer(delayMs, () => {
      this.#restartTimer = undefined;
      this.#restart ??= Promise.withResolvers();
      this.#starting = this.#start();
    });
  }

  async #start(): Promise<void> {
    const { start, warn } = this.#parts;
    try {
      const started = await start(this.#disposal.signal);
      if (this.#isDisposed) {
        started.session.kill("");
        await started.session.ended;
        return;
      }
      this.#started = started;
      this.#endRestart();
      this.#watch(started);
      warn(`the process of '${this.placement.name}' was started again`);
    } catch (reason) {
      if (this.#isDisposed) return;
      warn(
        `the process of '${this.placement.name}' cannot be started again: ` +
          ServerError.from(reason).message,
      );
      this.#endRestart();
      this.#scheduleRestart();
    }
  }

  /** Requests do not wait any longer. */
  #endRestart(): void {
    this.#restart?.resolve();
    this.#restart = undefined;
  }

  get #isDisposed(): boolean {
    return this.#disposal.signal.aborted;
  }

  #deathText(): string {
    return `Stub process '${this.placement.name}' is not healthy.`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isDisposed) return;
    this.#disposal.abort();
    this.#restartTimer?.cancel();
    this.#endRestart();
    await this.#starting;
    const { session } = this.#started;
    if (session.isOver) await session.ended;
    else await session.finalize(this.#parts.finalizeTimeoutMs);
  }
}
