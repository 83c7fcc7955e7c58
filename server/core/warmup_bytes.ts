import type { Datatype } from "../../proto/datatype.ts";
import { ServerError } from "../../proto/status.ts";
import { elementCount, tensorByteSize } from "../../proto/tensor.ts";

/** What one input of a sample may take at most: more than a client could send in one message. */
export const WARMUP_BYTE_SIZE_MAX = 2 ** 31 - 1;

const LENGTH_BYTES = 4;
const RANDOM_BLOCK_BYTES = 65_536;

/**
 * Bytes of an input of a sample; for BYTES those of empty strings, the least there can be.
 * @throws ServerError INVALID_ARG when they are too many.
 */
export function warmupByteSize(
  name: string,
  tensor: { readonly datatype: Datatype; readonly shape: readonly number[] },
): number {
  const what = `input '${name}'`;
  const byteSize = tensorByteSize(tensor.datatype, tensor.shape, what) ??
    elementCount(tensor.shape, what) * LENGTH_BYTES;
  if (byteSize <= WARMUP_BYTE_SIZE_MAX) return byteSize;
  throw new ServerError(
    "INVALID_ARG",
    `warmup data for input '${name}' must not be larger than ${WARMUP_BYTE_SIZE_MAX} bytes, got ` +
      `${byteSize}`,
  );
}

/** Zeros and random bytes for samples; all inputs share them (scheduling.md §8). Nobody may write to them. */
export class WarmupBytes {
  #zeros = new Uint8Array();
  #random = new Uint8Array();
  #bits = new Uint8Array();

  zeros(byteSize: number): Uint8Array {
    if (this.#zeros.byteLength < byteSize) this.#zeros = new Uint8Array(byteSize);
    return this.#zeros.subarray(0, byteSize);
  }

  /** Random bytes of a datatype with elements of fixed size; booleans are 0 or 1. */
  random(byteSize: number, datatype: Datatype): Uint8Array {
    if (datatype === "BOOL") {
      if (this.#bits.byteLength < byteSize) this.#bits = randomBytes(byteSize, 1);
      return this.#bits.subarray(0, byteSize);
    }
    if (this.#random.byteLength < byteSize) this.#random = randomBytes(byteSize, 0xff);
    return this.#random.subarray(0, byteSize);
  }
}

/** One random block, again and again. */
function randomBytes(byteSize: number, mask: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(byteSize);
  const block = bytes.subarray(0, Math.min(byteSize, RANDOM_BLOCK_BYTES));
  crypto.getRandomValues(block);
  for (let index = 0; index < block.length; index++) block[index]! &= mask;
  for (let filled = block.length; filled < byteSize; filled *= 2) {
    bytes.copyWithin(filled, 0, Math.min(filled, byteSize - filled));
  }
  return bytes;
}
