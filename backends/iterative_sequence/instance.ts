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
import { SequenceMemory } from "../sequence_memory.ts";

interface IterativeParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  /** Whether the scheduler can give another turn; without it, it says so itself. */
  readonly isIterative: boolean;
}

/** Counts down for each sequence. */
export class IterativeSequenceInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: IterativeParts;
  readonly #remainders = new SequenceMemory();

  constructor(placement: InstancePlacement, parts: IterativeParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now } = this.#parts;
    const inputEndMs = now();
    await pace.delay(this.placement, requests);
    const outputStartMs = now();
    const held: (Promise<void> | undefined)[] = [];
    const outcomes = requests.map((request) => this.#turn(request, held));
    // The next turn comes when the answers of this one are taken: no client is sent more than it reads.
    await Promise.all(held);
    return { outcomes, inputEndMs, outputStartMs };
  }

  #turn(request: ExecuteRequest, held: (Promise<void> | undefined)[]): ExecuteOutcome {
    const error = this.#parts.pace.failure(request);
    if (error !== undefined) {
      this.#remainders.delete(request.correlationId);
      return { error };
    }
    try {
      const remainder = this.#countDown(request);
      const isLast = remainder <= 0;
      if (!isLast && !this.#parts.isIterative) return { streamed: true, reschedule: true };
      const shape = findInput(request, "INPUT").shape;
      const output = filledIntegers("OUTPUT", shape, remainder);
      held.push(request.send({ outputs: [output] }, isLast));
      return isLast ? { streamed: true } : { streamed: true, reschedule: true };
    } catch (reason) {
      return { error: ServerError.from(reason) };
    }
  }

  #countDown(request: ExecuteRequest): number {
    const { correlationId, sequenceStart } = request;
    const known = sequenceStart ? undefined : this.#remainders.get(correlationId);
    const before = known ?? readFirstInteger(findInput(request, "INPUT"));
    const remainder = before - 1;
    if (remainder > 0) this.#remainders.set(correlationId, remainder);
    else this.#remainders.delete(correlationId);
    return remainder;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#remainders.clear();
    return Promise.resolve();
  }
}
