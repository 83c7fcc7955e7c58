import { ServerError } from "../proto/status.ts";
import type { Tensor } from "../proto/tensor.ts";
import type { ExecuteRequest } from "./backend.ts";

const INTEGER_BYTES = 4;

/** An input of a request by name. @throws ServerError UNSUPPORTED when the request has none. */
export function findInput({ inputs }: ExecuteRequest, name: string): Tensor {
  const input = inputs.find((each) => each.name === name);
  if (input !== undefined) return input;
  throw new ServerError("UNSUPPORTED", `failed to get input '${name}'`);
}

/** Elements of an INT32 tensor, as a copy. @throws ServerError INVALID_ARG for another byte size. */
export function readIntegers({ name, data }: Tensor): Int32Array {
  if (data.byteLength % INTEGER_BYTES === 0) return new Int32Array(data.slice().buffer);
  throw new ServerError("INVALID_ARG", `input '${name}' has ${data.byteLength} bytes, no integers`);
}

/** Elements of a UINT32 tensor, as a copy. @throws ServerError INVALID_ARG for another byte size. */
export function readUnsigned(tensor: Tensor): Uint32Array {
  return new Uint32Array(readIntegers(tensor).buffer);
}

/** The first element. @throws ServerError INVALID_ARG when there is none. */
export function readFirstInteger(tensor: Tensor): number {
  const [first] = readIntegers(tensor);
  if (first !== undefined) return first;
  throw new ServerError("INVALID_ARG", `input '${tensor.name}' must have an element, got none`);
}

/** All elements added to `start`, in 32 bits. */
export function addIntegers(start: number, tensor: Tensor): number {
  let sum = start;
  for (const each of readIntegers(tensor)) sum = (sum + each) | 0;
  return sum;
}

/** An INT32 tensor whose elements are all `value`. */
export function filledIntegers(name: string, shape: readonly number[], value: number): Tensor {
  const count = shape.reduce((product, dim) => product * dim, 1);
  const data = new Uint8Array(new Int32Array(count).fill(value).buffer);
  return { name, datatype: "INT32", shape, data };
}
