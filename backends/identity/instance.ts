import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
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
  /** By name of an optional input. */
  readonly optionals: ReadonlyMap<string, Zeros>;
  readonly isBatching: boolean;
}

/** What an output is when its optional input is left out. */
export interface Zeros {
  readonly datatype: Datatype;
  /** Without the batch dimension. */
  readonly dims: readonly number[];
}

/** Bytes of the length that stands before each element of a BYTES tensor: zero makes it an empty one. */
const LENGTH_BYTES = 4;

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

  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { pace, now } = this.#parts;
    const answer = (request: ExecuteRequest) => this.#echo(request);
    return pace.execute(requests, { placement: this.placement, now, answer });
  }

  #echo(request: ExecuteRequest): ExecuteOutcome {
    const { pace, inputOf } = this.#parts;
    const error = pace.failure(request);
    if (error !== undefined) return { error };
    const outputs = [];
    for (const name of request.outputs) {
      const inputName = inputOf.get(name);
      const input = request.inputs.find((each) => each.name === inputName) ??
        this.#zeros(inputName, request);
      if (input === undefined) {
        return { error: new ServerError("UNSUPPORTED", `failed to get input '${inputName}'`) };
      }
      const { datatype, shape, data } = input;
      outputs.push({ name, datatype, shape, data });
    }
    return { outputs, parameters: RESPONSE_PARAMETERS };
  }

  #zeros(
    name: string | undefined,
    { batchSize }: ExecuteRequest,
  ): Omit<Tensor, "name"> | undefined {
    const zeros = this.#parts.optionals.get(name ?? "");
    if (zeros === undefined) return undefined;
    const shape = this.#parts.isBatching ? [batchSize, ...zeros.dims] : zeros.dims;
    const elementBytes = DATATYPES[zeros.datatype].byteSize || LENGTH_BYTES;
    const data = new Uint8Array(elementCount(shape) * elementBytes);
    return { datatype: zeros.datatype, shape, data };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
