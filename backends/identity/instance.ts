import { ServerError } from "../../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";

/** How one model behaves. */
export interface IdentityRules {
  /** Output name → name of the input it repeats. */
  readonly inputOf: ReadonlyMap<string, string>;
  readonly executeDelayMs: number;
  /** With it the delay is multiplied by the device id (at least 1). */
  readonly delayMultiplier: number;
  /** Every so many requests one fails; absent = none. */
  readonly failEvery?: number;
}

/** What instances of one model share. */
interface SharedState {
  readonly now: () => number;
  /** Counts a request and returns its number, from 1. */
  readonly countRequest: () => number;
}

const RESPONSE_PARAMETERS = {
  param0: "an example string parameter",
  param1: 42n,
  param2: false,
} as const;

/** One place in which batches are echoed. */
export class IdentityInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #rules: IdentityRules;
  readonly #shared: SharedState;

  constructor(placement: InstancePlacement, rules: IdentityRules, shared: SharedState) {
    this.placement = placement;
    this.#rules = rules;
    this.#shared = shared;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const inputEndMs = this.#shared.now();
    const delayMs = this.#delayMs();
    if (delayMs > 0) await pauseUnlessAborted(delayMs, requests);
    const outputStartMs = this.#shared.now();
    const outcomes = requests.map((request) => this.#echo(request, delayMs > 0));
    return { outcomes, inputEndMs, outputStartMs };
  }

  #delayMs(): number {
    const { executeDelayMs, delayMultiplier } = this.#rules;
    return executeDelayMs * Math.max(delayMultiplier * this.placement.deviceId, 1);
  }

  #echo(request: ExecuteRequest, wasDelayed: boolean): ExecuteOutcome {
    const { inputOf, failEvery } = this.#rules;
    const requestNumber = this.#shared.countRequest();
    if (wasDelayed && request.signal?.aborted) {
      return { error: new ServerError("CANCELLED", "Request cancelled while it was executed") };
    }
    if (failEvery !== undefined && requestNumber % failEvery === 0) {
      const message = `request ${requestNumber} fails: parameter 'fail_every' is ${failEvery}`;
      return { error: new ServerError("INTERNAL", message) };
    }
    const outputs = [];
    for (const name of request.outputs) {
      const inputName = inputOf.get(name);
      const input = request.inputs.find((each) => each.name === inputName);
      if (input === undefined) {
        return { error: new ServerError("UNSUPPORTED", `failed to get input '${inputName}'`) };
      }
      const { datatype, shape, data } = input;
      outputs.push({ name, datatype, shape, data });
    }
    return { outputs, parameters: RESPONSE_PARAMETERS };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

/** Waits, but not longer than until every request of the batch is aborted. */
function pauseUnlessAborted(delayMs: number, requests: readonly ExecuteRequest[]): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      for (const { signal } of requests) signal?.removeEventListener("abort", onAbort);
      resolve();
    };
    const onAbort = () => {
      if (requests.every(({ signal }) => signal?.aborted)) end();
    };
    const timer = setTimeout(end, delayMs);
    for (const { signal } of requests) signal?.addEventListener("abort", onAbort);
    onAbort();
  });
}
