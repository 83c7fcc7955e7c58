import assert from "node:assert/strict";
import { dimsByteSize, readDims, writeDims } from "./dims.ts";

for (const bits of [32, 64] as const) {
  Deno.test(`readDims() gives back what writeDims() wrote, with ${bits} bits`, () => {
    for (const dims of [[], [7], [-1, 3, 224, 224], [1, 2, 3, 4, 5, 6, 7, 8]]) {
      const block = new Uint8Array(dimsByteSize(bits));
      writeDims(block, dims, bits);
      assert.deepEqual(readDims(block, bits), dims);
    }
    assert.throws(() => writeDims(new Uint8Array(80), new Array(9).fill(1), bits), RangeError);
  });

  Deno.test(`readDims() takes no invalid number of dimensions, with ${bits} bits`, () => {
    const block = new Uint8Array(dimsByteSize(bits));
    for (const rank of [-1, 9]) {
      new DataView(block.buffer).setInt32(0, rank, true);
      assert.equal(readDims(block, bits), undefined);
    }
  });
}
