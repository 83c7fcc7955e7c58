import assert from "node:assert/strict";
import { FrameReader } from "./frame_reader.ts";
import { FrameWriter } from "./frame_writer.ts";

function read(write: (frame: FrameWriter) => void) {
  const writer = new FrameWriter().begin();
  write(writer);
  const memory = new SharedArrayBuffer(writer.byteSize);
  writer.writeTo(memory, 0);
  return new FrameReader(memory, 0).tensor("X");
}

/** The fields of a tensor as they lie in a frame. */
function fields(datatype: number, shape: readonly number[], byteSize: number) {
  return (frame: FrameWriter) => {
    frame.u8(datatype).u32(shape.length);
    for (const dim of shape) frame.f64(dim);
    frame.f64(0).f64(byteSize);
  };
}

Deno.test("FrameReader refuses tensors that a model made up in the memory it shares", () => {
  assert.throws(() => read(fields(99, [1], 0)), /no datatype/);
  for (const dim of [-1, NaN, -Infinity]) {
    assert.throws(() => read(fields(1, [dim], 0)), /has a dimension/);
  }
  assert.throws(() => read(fields(1, [3], 0)), /has 0 bytes and the shape \[3\]/);
  assert.throws(() => read(fields(1, [1], 1 << 20)), RangeError);
  assert.throws(() => read((frame) => frame.u8(1).u32(0xffff_ffff)), RangeError);
});

Deno.test("FrameReader takes scalars and tensors without elements", () => {
  assert.deepEqual(read(fields(1, [0, 5], 0)).shape, [0, 5]);
  const scalar = read((frame) => frame.tensor("UINT8", [], Uint8Array.of(7)));
  assert.deepEqual([scalar.shape, [...scalar.data]], [[], [7]]);
});
