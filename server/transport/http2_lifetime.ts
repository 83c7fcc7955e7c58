import type { TransportContext } from "./connection.ts";

/** What a connection's lifetime is judged by. */
export interface LifetimeView {
  streamCount(): number;
  /** False when no further ping may be sent. */
  trySendPing(): boolean;
  /** Announces the end and lets streams finish. */
  drain(): void;
  close(): void;
}

/** Deadlines of an HTTP/2 connection as a whole: first request, idleness, keepalive pings, age. */
export class Http2Lifetime {
  readonly #context: TransportContext;
  readonly #view: LifetimeView;
  readonly #openedAt: number;
  readonly #maxAgeMs: number;
  #lastReceiveAt: number;
  #lastStreamAt: number;
  #hasSettings = false;
  /** When the ping under way was sent; 0 = none. */
  #pingSentAt = 0;
  #drainedForAgeAt = 0;

  constructor(context: TransportContext, view: LifetimeView) {
    this.#context = context;
    this.#view = view;
    this.#openedAt = this.#lastReceiveAt = this.#lastStreamAt = context.now;
    // Spread, so that connections opened together do not come back together.
    this.#maxAgeMs = context.limits.maxConnectionAgeMs * (0.9 + 0.2 * Math.random());
  }

  /** The peer's SETTINGS have come, as its first frame. */
  get hasSettings(): boolean {
    return this.#hasSettings;
  }

  noteReceived(): void {
    this.#lastReceiveAt = this.#context.now;
    this.#pingSentAt = 0;
  }

  noteSettings(): void {
    this.#hasSettings = true;
  }

  tick(): void {
    const { limits, now } = this.#context;
    const view = this.#view;
    if (view.streamCount() > 0) this.#lastStreamAt = now;
    if (!this.#hasSettings && now - this.#openedAt > limits.handshakeTimeoutMs) return view.close();
    if (now - this.#lastStreamAt > limits.idleTimeoutMs) view.drain();
    this.#checkKeepalive();
    this.#checkAge();
  }

  #checkKeepalive(): void {
    const { limits, now } = this.#context;
    if (this.#pingSentAt > 0) {
      if (now - this.#pingSentAt > limits.keepaliveTimeoutMs) this.#view.close();
      return;
    }
    const mayPing = this.#view.streamCount() > 0 || limits.permitWithoutCalls;
    if (!mayPing || now - this.#lastReceiveAt <= limits.keepaliveTimeMs) return;
    if (this.#view.trySendPing()) this.#pingSentAt = now;
  }

  #checkAge(): void {
    const { limits, now } = this.#context;
    if (this.#drainedForAgeAt > 0) {
      if (now - this.#drainedForAgeAt > limits.maxConnectionAgeGraceMs) this.#view.close();
      return;
    }
    if (now - this.#openedAt <= this.#maxAgeMs) return;
    this.#drainedForAgeAt = now;
    this.#view.drain();
  }
}
