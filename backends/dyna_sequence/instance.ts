import { decodeBytesTensor } from "../../proto/bytes_tensor.ts";
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
import { addIntegers, filledIntegers, findInput, readFirstInteger } from "../integer_tensor.ts";
import { SequenceMemory } from "../sequence_memory.ts";

interface DynaSequenceParts {
  readonly pace: ExecutionPace;
  readonly now: () => number;
  readonly batchSizeMax: number;
}

/** An accumulator per correlation id. */
export class DynaSequenceInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: DynaSequenceParts;
  readonly #accumulators = new SequenceMemory();

  constructor(placement: InstancePlacement, parts: DynaSequenceParts) {
    this.placement = placement;
    this.#parts = parts;
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now, batchSizeMax } = this.#parts;
    if (requests.length > batchSizeMax) {
      throw new ServerError("UNSUPPORTED", "unable to execute batch larger than max-batch-size");
    }
    const seen = new Set<bigint>();
    const answer = (request: ExecuteRequest) => this.#step(request, seen);
    return await pace.execute(requests, { placement: this.placement, now, answer });
  }

  #step(request: ExecuteRequest, seen: Set<bigint>): ExecuteOutcome {
    try {
      if (readFirstInteger(findInput(request, "READY")) === 0) return { outputs: [] };
      const error = this.#parts.pace.failure(request);
      if (error !== undefined) return { error };
      const id = readCorrelationId(findInput(request, "CORRID"));
      if (seen.has(id)) {
        throw new ServerError(
          "UNSUPPORTED",
          "Execute() called with batch containing multiple inferences requests for the same " +
            "Correlation ID",
        );
      }
      seen.add(id);
      const input = findInput(request, "INPUT");
      return { outputs: [filledIntegers("OUTPUT", input.shape, this.#add(id, request, input))] };
    } catch (reason) {
      return { error: ServerError.from(reason) };
    }
  }

  #add(id: bigint, request: ExecuteRequest, input: Tensor): number {
    const isStart = readFirstInteger(findInput(request, "START")) !== 0;
    const isEnd = readFirstInteger(findInput(request, "END")) !== 0;
    const sum = addIntegers(isStart ? 0 : this.#accumulators.get(id) ?? 0, input);
    if (isEnd) {
      this.#accumulators.delete(id);
      return (sum + Number(BigInt.asIntN(32, id))) | 0;
    }
    this.#accumulators.set(id, sum);
    return sum;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#accumulators.clear();
    return Promise.resolve();
  }
}

function readCorrelationId({ datatype, data }: Tensor): bigint {
  if (datatype === "UINT64" && data.byteLength >= 8) {
    return new DataView(data.buffer, data.byteOffset).getBigUint64(0, true);
  }
  if (datatype === "BYTES") {
    const [bytes] = decodeBytesTensor(data);
    // Like C's `stoi`: blanks before, anything behind.
    const digits = /^\s*([+-]?)(\d{1,19})/.exec(new TextDecoder().decode(bytes));
    if (digits !== null) return BigInt(`${digits[1] === "-" ? "-" : ""}${digits[2]}`);
  }
  throw new ServerError(
    "INVALID_ARG",
    "dyna sequence backend expects correlation ID to be decodable into an integer",
  );
}
