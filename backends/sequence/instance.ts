import { ServerError } from "../../proto/status.ts";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import type { ExecutionPace } from "../execution_pace.ts";
import { addIntegers, filledIntegers, findInput, readFirstInteger } from "../integer_tensor.ts";

interface SequenceParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  /** Places in a batch. */
  readonly slotCount: number;
}

/** An accumulator per place of the batch. */
export class SequenceInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: SequenceParts;
  /** By place; what was not used yet is not there: there may be as many places as numbers. */
  readonly #accumulators: number[] = [];

  constructor(placement: InstancePlacement, parts: SequenceParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now, slotCount } = this.#parts;
    if (requests.length > slotCount) {
      throw new ServerError("UNSUPPORTED", "unable to execute batch larger than max-batch-size");
    }
    const answer = (request: ExecuteRequest, slot: number) => this.#step(request, slot);
    return await pace.execute(requests, { placement: this.placement, now, answer });
  }

  #step(request: ExecuteRequest, slot: number): ExecuteOutcome {
    try {
      if (readFirstInteger(findInput(request, "READY")) === 0) return { outputs: [] };
      const error = this.#parts.pace.failure(request);
      if (error !== undefined) return { error };
      const isStart = readFirstInteger(findInput(request, "START")) !== 0;
      const input = findInput(request, "INPUT");
      const sum = addIntegers(isStart ? 0 : this.#accumulators[slot] ?? 0, input);
      this.#accumulators[slot] = sum;
      return { outputs: [filledIntegers("OUTPUT", input.shape, sum)] };
    } catch (reason) {
      return { error: ServerError.from(reason) };
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
