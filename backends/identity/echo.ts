import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
import type { ExecuteRequest, ExecuteResponse } from "../backend.ts";

/** Which output repeats which input. */
export interface IdentityModel {
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

/** Answers with the inputs, without a copy. */
export function echo(request: ExecuteRequest, model: IdentityModel): ExecuteResponse {
  const outputs = [];
  for (const name of request.outputs) {
    const inputName = model.inputOf.get(name);
    const input = request.inputs.find((each) => each.name === inputName) ??
      makeZeros(model.optionals.get(inputName ?? ""), model.isBatching ? [request.batchSize] : []);
    if (input === undefined) {
      return { error: new ServerError("UNSUPPORTED", `failed to get input '${inputName}'`) };
    }
    const { datatype, shape, data } = input;
    outputs.push({ name, datatype, shape, data });
  }
  return { outputs, parameters: RESPONSE_PARAMETERS };
}

function makeZeros(
  zeros: Zeros | undefined,
  batchDims: readonly number[],
): Omit<Tensor, "name"> | undefined {
  if (zeros === undefined) return undefined;
  const { datatype, dims } = zeros;
  const shape = [...batchDims, ...dims];
  const elementBytes = DATATYPES[datatype].byteSize || LENGTH_BYTES;
  return { datatype, shape, data: new Uint8Array(elementCount(shape) * elementBytes) };
}
