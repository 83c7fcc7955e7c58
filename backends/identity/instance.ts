import { ServerError } from "../../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import type { ExecutionPace } from "../execution_pace.ts";

interface IdentityParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  /** Output name → name of the input it repeats. */
  readonly inputOf: ReadonlyMap<string, string>;
}

const RESPONSE_PARAMETERS = {
  param0: "an example string parameter",
  param1: 42n,
  param2: false,
} as const;

/** One place in which batches are echoed. */
export class IdentityInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: IdentityParts;

  constructor(placement: InstancePlacement, parts: IdentityParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { now, pace } = this.#parts;
    const inputEndMs = now();
    const delay = pace.delay(this.placement, requests);
    if (delay !== undefined) await delay;
    const outputStartMs = now();
    const outcomes = requests.map((request) => this.#echo(request));
    return { outcomes, inputEndMs, outputStartMs };
  }

  #echo(request: ExecuteRequest): ExecuteOutcome {
    const { pace, inputOf } = this.#parts;
    const error = pace.failure(request);
    if (error !== undefined) return { error };
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
