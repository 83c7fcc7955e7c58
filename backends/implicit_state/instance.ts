import { ServerError } from "../../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import type { ExecutionPace } from "../execution_pace.ts";
import { filledIntegers, findInput, readFirstInteger } from "../integer_tensor.ts";

interface ImplicitStateParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  readonly modelName: string;
  readonly hasStates: boolean;
}

const TEST_CASE = { MISSING_STATE: 0, NO_UPDATE: 1, SINGLE_BUFFER: 2, GROWABLE_MEMORY: 3 } as const;

/** Adds the input to the state. It keeps nothing itself. */
export class ImplicitStateInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: ImplicitStateParts;

  constructor(placement: InstancePlacement, parts: ImplicitStateParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now } = this.#parts;
    const answer = (request: ExecuteRequest) => this.#add(request);
    return pace.execute(requests, { placement: this.placement, now, answer });
  }

  #add(request: ExecuteRequest): ExecuteOutcome {
    const error = this.#parts.pace.failure(request);
    if (error !== undefined) return { error };
    try {
      const testCase = readFirstInteger(findInput(request, "TEST_CASE"));
      this.#checkCase(testCase);
      const input = findInput(request, "INPUT");
      const sum = readFirstInteger(input) + readFirstInteger(findInput(request, "INPUT_STATE"));
      const names = testCase === TEST_CASE.NO_UPDATE ? ["OUTPUT"] : ["OUTPUT", "OUTPUT_STATE"];
      const made = names.filter((name) => request.outputs.includes(name));
      return { outputs: made.map((name) => filledIntegers(name, input.shape, sum)) };
    } catch (reason) {
      return { error: ServerError.from(reason) };
    }
  }

  #checkCase(testCase: number): void {
    const { hasStates, modelName } = this.#parts;
    if (testCase === TEST_CASE.MISSING_STATE) {
      const name = "undefined_state";
      throw new ServerError(
        "INVALID_ARG",
        hasStates
          ? `state '${name}' is not a valid state name.`
          : `unable to add state '${name}'. State configuration is missing for model '${modelName}'.`,
      );
    }
    if (testCase === TEST_CASE.GROWABLE_MEMORY) {
      throw new ServerError("UNSUPPORTED", "growable memory should always provide memory in GPU");
    }
    if (testCase === TEST_CASE.NO_UPDATE || testCase === TEST_CASE.SINGLE_BUFFER) return;
    throw new ServerError("INVALID_ARG", `expected TEST_CASE to be 0, 1, 2 or 3, got ${testCase}`);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
