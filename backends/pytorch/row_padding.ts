import { allocateAligned } from "../../ffi/memory.ts";
import type { TorchError, TorchValue } from "../../ffi/pytorch/mod.ts";

/** PyTorch compiles packages whose first dimension is free for two rows and more; nothing asks for many. */
const MAX_LEAST_ROWS = 16;
const TOO_FEW = /dim value is too small at 0, expected it to be >= (\d+), but got: (\d+)/;

/** The rows that the code of a package wants, when it refused a run for having fewer; else undefined. */
export function leastRowsIn(error: TorchError): number | undefined {
  const least = Number(TOO_FEW.exec(error.message)?.[1]);
  return least <= MAX_LEAST_ROWS ? least : undefined;
}

/** Inputs of `rows` rows with the last one repeated until there are `least`; the others as they are. */
export function padRows(
  inputs: readonly TorchValue[],
  { rows, least }: { readonly rows: number; readonly least: number },
): TorchValue[] {
  return inputs.map((input) => {
    if (input.kind !== "tensor" || input.shape[0] !== rows) return input;
    const rowSize = input.data.byteLength / rows;
    const data = allocateAligned(rowSize * least).subarray(0, rowSize * least);
    data.set(input.data);
    const last = input.data.subarray((rows - 1) * rowSize);
    for (let row = rows; row < least; row++) data.set(last, row * rowSize);
    return { ...input, shape: [least, ...input.shape.slice(1)], data };
  });
}

/** Outputs without the rows that {@linkcode padRows} led to. */
export function cutRows(
  outputs: readonly TorchValue[],
  { rows, least }: { readonly rows: number; readonly least: number },
): TorchValue[] {
  return outputs.map((output) => {
    if (output.kind !== "tensor" || output.shape[0] !== least) return output;
    const data = output.data.subarray(0, output.data.byteLength / least * rows);
    return { ...output, shape: [rows, ...output.shape.slice(1)], data };
  });
}
