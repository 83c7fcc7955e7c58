import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import type { ExecutionPace } from "../execution_pace.ts";

interface QueryParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  readonly isAnonymous: boolean;
  readonly isFailing: boolean;
  /** Of each output. */
  readonly byteSize: number;
}

/** Answers with zeros, or with where they would lie: outputs are always made in the memory of the processor. */
export class QueryInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: QueryParts;

  constructor(placement: InstancePlacement, parts: QueryParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now } = this.#parts;
    const answer = (request: ExecuteRequest) => this.#answer(request);
    return pace.execute(requests, { placement: this.placement, now, answer });
  }

  #answer(request: ExecuteRequest): ExecuteOutcome {
    const { pace, isFailing, isAnonymous, byteSize } = this.#parts;
    const error = pace.failure(request);
    if (error !== undefined) return { error };
    if (isFailing) {
      const names = isAnonymous ? ["NULL"] : ["OUTPUT0", "OUTPUT1"];
      const message = names.map((name) => `${name} CPU 0; `).join("");
      return { error: new ServerError("UNKNOWN", message) };
    }
    const outputs = request.outputs.map((name): Tensor => ({
      name,
      datatype: "UINT8",
      shape: [byteSize],
      data: new Uint8Array(byteSize),
    }));
    return { outputs };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
