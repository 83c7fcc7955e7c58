import assert from "node:assert/strict";
import { decodeBytesTensor, encodeBytesTensor } from "./bytes_tensor.ts";
import { ServerError } from "./status.ts";

Deno.test("decodeBytesTensor() undoes encodeBytesTensor()", () => {
  const elements = ["abc", "", Uint8Array.of(0, 255, 128), "ä"];
  const encoded = encodeBytesTensor(elements);
  assert.deepEqual(
    decodeBytesTensor(encoded),
    elements.map((element) =>
      typeof element === "string" ? new TextEncoder().encode(element) : element
    ),
  );
});

Deno.test("decodeBytesTensor() refuses lengths beyond the end", () => {
  for (const bytes of [[1, 0, 0], [1, 0, 0, 0], [255, 255, 255, 255, 1], [0, 0, 0, 0, 9]]) {
    assert.throws(() => decodeBytesTensor(Uint8Array.from(bytes)), ServerError);
  }
});
