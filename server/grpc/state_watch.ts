import type { InferenceApi } from "../core/inference_api.ts";
import type { SetTimer } from "./grpc_options.ts";

/** What health answers depend on. */
export type ServerState = "READY" | "NOT_READY" | "EXITING";

const POLL_INTERVAL_MS = 250;

/** Reads the state of the server. */
export function serverState(api: InferenceApi): ServerState {
  if (api.isExiting()) return "EXITING";
  return api.isReady() ? "READY" : "NOT_READY";
}

/** Tells subscribers when the state of the server changed; looks only while there are any. */
export class StateWatch {
  readonly #api: InferenceApi;
  readonly #setTimer: SetTimer;
  readonly #subscribers = new Set<(state: ServerState) => void>();
  #state: ServerState = "NOT_READY";
  #timer: { cancel(): void } | undefined;

  constructor(api: InferenceApi, setTimer: SetTimer) {
    this.#api = api;
    this.#setTimer = setTimer;
  }

  /** Subscribes; returns the function that ends the subscription. */
  subscribe(callback: (state: ServerState) => void): () => void {
    if (this.#timer === undefined) {
      this.#state = serverState(this.#api);
      this.#arm();
    }
    this.#subscribers.add(callback);
    return () => {
      this.#subscribers.delete(callback);
      if (this.#subscribers.size > 0) return;
      this.#timer?.cancel();
      this.#timer = undefined;
    };
  }

  #arm(): void {
    this.#timer = this.#setTimer(POLL_INTERVAL_MS, () => this.#look());
  }

  #look(): void {
    this.#arm();
    const state = serverState(this.#api);
    if (state === this.#state) return;
    this.#state = state;
    for (const subscriber of [...this.#subscribers]) subscriber(state);
  }
}
