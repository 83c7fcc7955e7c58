import assert from "node:assert/strict";
import { encodeBytesTensor } from "../../proto/bytes_tensor.ts";
import {
  bytesOfArray,
  DATATYPE_ORDER,
  datatypeOfArray,
  elementBytes,
  fitsDatatype,
  viewArray,
} from "./tensor_arrays.ts";

Deno.test("viewArray() has the kind of array of each datatype, over the same bytes", () => {
  for (const datatype of DATATYPE_ORDER) {
    const bytes = new Uint8Array(new ArrayBuffer(64), 8, 16);
    const array = viewArray(datatype, datatype === "BYTES" ? bytes.subarray(0, 0) : bytes);
    assert.ok(fitsDatatype(array, datatype), datatype);
    if (datatype === "BYTES") continue;
    const view = array as unknown as ArrayBufferView & { readonly length: number };
    assert.deepEqual([view.buffer, view.byteOffset], [bytes.buffer, 8]);
    assert.equal(view.length, 16 / elementBytes(datatype));
  }
});

Deno.test("BYTES elements are found when asked for, and refuse an index outside", () => {
  const encoded = encodeBytesTensor(["schön", "", "x"]);
  const elements = viewArray("BYTES", encoded);
  assert.equal(elements.length, 3);
  assert.deepEqual(elements.texts(), ["schön", "", "x"]);
  assert.equal(elements.text(0), "schön");
  assert.deepEqual([...elements].map(({ length }) => length), [6, 0, 1]);
  assert.throws(() => elements.bytes(3), { name: "RangeError", message: /Element 3/ });
  assert.equal(bytesOfArray(elements), encoded);
});

Deno.test("datatypeOfArray() tells what an array is by itself", () => {
  assert.equal(datatypeOfArray(new Float16Array(1)), "FP16");
  assert.equal(datatypeOfArray(new Uint8Array(1)), "UINT8");
  assert.equal(datatypeOfArray(new BigInt64Array(1)), "INT64");
  assert.equal(datatypeOfArray(["a", new Uint8Array(1)]), "BYTES");
  assert.equal(datatypeOfArray([1, 2] as never), undefined);
  assert.equal(datatypeOfArray(undefined as never), undefined);
});
