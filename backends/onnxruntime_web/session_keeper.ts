import type { WebSession } from "./web_session.ts";

/** A session that nobody took within this time is closed. */
const KEPT_MS = 30_000;

/** Keeps a session for whoever needs one next, so that a model is not loaded twice. */
export class SessionKeeper implements Disposable {
  #session: WebSession | undefined;
  readonly #timer: ReturnType<typeof setTimeout>;

  /** `onLate` is called when nobody took it in time. */
  constructor(session: WebSession, onLate: () => void = () => {}) {
    this.#session = session;
    this.#timer = setTimeout(() => {
      this[Symbol.dispose]();
      onLate();
    }, KEPT_MS);
    Deno.unrefTimer(this.#timer);
  }

  /** The session, which is the caller's now; undefined when it is not there any more. */
  take(): WebSession | undefined {
    clearTimeout(this.#timer);
    const session = this.#session;
    this.#session = undefined;
    return session?.endReason === undefined ? session : undefined;
  }

  [Symbol.dispose](): void {
    this.take()?.[Symbol.dispose]();
  }
}
