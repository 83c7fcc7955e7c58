import { ServerError } from "../../proto/status.ts";
import type { Timers } from "../pause.ts";
import type { RestartPace } from "../restart_pace.ts";

/** A process as far as it matters for keeping it up. */
export interface KeptSession {
  /** Settles when nothing of it is left; tells how it ended. Never rejects. */
  readonly ended: Promise<string>;
  readonly isOver: boolean;
  readonly pid: number;
  kill(reason: string): void;
}

/** A process, with what it said when it was started. */
export interface Started<Session extends KeptSession> {
  readonly session: Session;
}

/** What keeping a process up takes. */
export interface KeptProcessParts<Kept extends Started<KeptSession>> {
  /** Of the instance, for the log. */
  readonly name: string;
  /** Starts another one; ends it and rejects when `signal` tells that nobody wants it any more. */
  readonly start: (signal: AbortSignal) => Promise<Kept>;
  /** Decides on restarts; undefined = a process that died stays dead. */
  readonly restartPace: RestartPace | undefined;
  readonly timers: Timers;
  readonly now: () => number;
  readonly warn: (message: string) => void;
}

/** A restart that is nearer than this is waited for by requests, and so long at most. */
const NEAR_RESTART_MS = 1000;
const RESTART_WAIT_MS = 10_000;

/** One process that is started again when it dies, later each time, until it has died too often. */
export class KeptProcess<Kept extends Started<KeptSession>> {
  readonly #parts: KeptProcessParts<Kept>;
  readonly #disposal = new AbortController();
  #current: Kept;
  #restart: PromiseWithResolvers<void> | undefined;
  #restartTimer: { cancel(): void } | undefined;
  #starting: Promise<void> | undefined;
  #hasGivenUp = false;

  constructor(parts: KeptProcessParts<Kept>, first: Kept) {
    this.#parts = parts;
    this.#current = first;
    this.#watch(first);
  }

  /** The last one that was started; it may have ended. */
  get current(): Kept {
    return this.#current;
  }

  /** It has died too often, or once where none is started again. */
  get hasGivenUp(): boolean {
    return this.#hasGivenUp;
  }

  /** Waits for a restart that is near, when the process has ended. Tells whether there is one that runs. */
  async whenUp(): Promise<boolean> {
    // Only then it is decided whether there is a restart.
    await this.#current.session.ended;
    const restart = this.#restart;
    if (restart === undefined) return !this.#current.session.isOver;
    const waited = Promise.withResolvers<void>();
    const timer = this.#parts.timers.setTimer(RESTART_WAIT_MS, waited.resolve);
    await Promise.race([restart.promise, waited.promise]);
    timer.cancel();
    return !this.#current.session.isOver;
  }

  /** Starts none any more. The one that runs, if any, is the caller's to end. */
  async stop(): Promise<void> {
    this.#disposal.abort();
    this.#restartTimer?.cancel();
    this.#endRestart();
    await this.#starting;
  }

  #watch({ session }: Kept): void {
    const { warn, name } = this.#parts;
    void session.ended.then((how) => {
      if (this.#isStopped) return;
      warn(`the process of '${name}' (pid ${session.pid}) has died: ${how}`);
      this.#scheduleRestart();
    });
  }

  #scheduleRestart(): void {
    const { restartPace, timers, now, warn, name } = this.#parts;
    const delayMs = restartPace?.fail(now());
    this.#hasGivenUp = delayMs === undefined;
    if (restartPace === undefined) return this.#endRestart();
    if (delayMs === undefined) {
      warn(
        `the process of '${name}' is not started again: it has died too often. Load the model ` +
          `again when the cause is mended`,
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
    const { start, warn, name } = this.#parts;
    try {
      const started = await start(this.#disposal.signal);
      if (this.#isStopped) {
        started.session.kill("");
        await started.session.ended;
        return;
      }
      this.#current = started;
      this.#endRestart();
      this.#watch(started);
      warn(`the process of '${name}' was started again`);
    } catch (reason) {
      if (this.#isStopped) return;
      const { message } = ServerError.from(reason);
      warn(`the process of '${name}' cannot be started again: ${message}`);
      this.#endRestart();
      this.#scheduleRestart();
    }
  }

  /** Requests do not wait any longer. */
  #endRestart(): void {
    this.#restart?.resolve();
    this.#restart = undefined;
  }

  get #isStopped(): boolean {
    return this.#disposal.signal.aborted;
  }
}
