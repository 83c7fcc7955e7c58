import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { requestPrefix } from "./scheduler/job.ts";

/**
 * Checks that the data of a BYTES tensor is exactly `expected` elements, each a length and that many bytes.
 * @throws ServerError INVALID_ARG with the texts of http.md §9.8.
 */
export function checkBytesElements(
  tensor: Tensor,
  expected: number,
  context: { readonly model: string; readonly id: string },
): void {
  const { data } = tensor;
  const place = `for inference input '${tensor.name}' for model '${context.model}'`;
  let offset = 0;
  let count = 0;
  while (offset < data.length) {
    const rest = data.length - offset;
    if (rest < 4) {
      fail(
        context.id,
        `incomplete string length indicator ${place}, expecting 4 bytes but only ${rest} bytes ` +
          `available. Please make sure the string length indicator is in one buffer.`,
      );
    }
    const length = (data[offset]! | data[offset + 1]! << 8 | data[offset + 2]! << 16 |
      data[offset + 3]! << 24) >>> 0;
    if (length > rest - 4) {
      fail(
        context.id,
        `incomplete string data ${place}, expecting string of length ${length} but only ` +
          `${rest - 4} bytes available`,
      );
    }
    offset += 4 + length;
    count++;
    if (count > expected) {
      fail(
        context.id,
        `unexpected number of string elements ${count} ${place}, expecting ${expected}`,
      );
    }
  }
  if (count < expected) {
    fail(context.id, `expected ${expected} string elements ${place}, got ${count}`);
  }
}

function fail(id: string, message: string): never {
  throw new ServerError("INVALID_ARG", requestPrefix(id) + message);
}
