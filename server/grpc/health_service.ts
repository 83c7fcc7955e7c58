import { Code, ConnectError } from "@connectrpc/connect";
import { HealthCheckResponse_ServingStatus } from "../../proto/gen/health_pb.ts";
import type { InferenceApi } from "../core/inference_api.ts";
import { exiting, type HealthService } from "./inference_service.ts";
import { type ServerState, serverState, type StateWatch } from "./state_watch.ts";

const { SERVING, NOT_SERVING } = HealthCheckResponse_ServingStatus;

/** The unary calls of `grpc.health.v1.Health`; the service name is ignored (grpc.md §2.1). */
export function createHealthService(api: InferenceApi): HealthService {
  return {
    check() {
      const state = serverState(api);
      if (state === "EXITING") throw exiting();
      return { status: servingStatus(state) };
    },
  };
}

function servingStatus(state: ServerState): HealthCheckResponse_ServingStatus {
  return state === "READY" ? SERVING : NOT_SERVING;
}

/** What a watcher is told. */
export interface HealthObserver {
  status(status: HealthCheckResponse_ServingStatus): void;
  /** The watch is over. */
  end(reason: unknown): void;
}

/** Health.Watch: tells the state at once and each change of it, to a bounded number of watchers. */
export class HealthWatch {
  readonly #api: InferenceApi;
  readonly #stateWatch: StateWatch;
  readonly #maxWatchers: number;
  #watchers = 0;

  constructor(api: InferenceApi, stateWatch: StateWatch, maxWatchers: number) {
    this.#api = api;
    this.#stateWatch = stateWatch;
    this.#maxWatchers = maxWatchers;
  }

  /**
   * Starts a watch; returns the function that ends it.
   * @throws ConnectError RESOURCE_EXHAUSTED when there are too many, ServerError UNAVAILABLE during shutdown.
   */
  watch(observer: HealthObserver): () => void {
    if (this.#api.isExiting()) throw exiting();
    if (this.#watchers >= this.#maxWatchers) {
      throw new ConnectError(
        `More health watchers than the ${this.#maxWatchers} allowed`,
        Code.ResourceExhausted,
      );
    }
    this.#watchers++;
    const unsubscribe = this.#stateWatch.subscribe((state) => {
      observer.status(servingStatus(state));
      if (state === "EXITING") observer.end(exiting());
    });
    observer.status(servingStatus(serverState(this.#api)));
    let watching = true;
    return () => {
      if (!watching) return;
      watching = false;
      this.#watchers--;
      unsubscribe();
    };
  }
}
