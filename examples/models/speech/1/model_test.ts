import assert from "node:assert/strict";
import { takeFrames } from "./model.ts";

function newStream() {
  return { samples: new Float32Array(64), begun: false };
}

function sound(count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, index) => index + 1);
}

Deno.test("takeFrames() puts the last 64 samples in front of each frame", () => {
  const stream = newStream();
  const frames = takeFrames(stream, sound(1100), false);
  assert.deepEqual(frames.map((frame) => frame.length), [576, 576]);
  assert.deepEqual([...frames[0]!.subarray(62, 66)], [0, 0, 1, 2]);
  assert.deepEqual([...frames[1]!.subarray(0, 2)], [449, 450]);
  assert.equal(frames[1]!.at(-1), 1024);
  assert.equal(stream.samples.length, 64 + 76);
});

Deno.test("takeFrames() gives the same frames however the sound is cut", () => {
  const whole = takeFrames(newStream(), sound(2000), true);
  for (const size of [1, 63, 64, 511, 512, 513, 1999]) {
    const stream = newStream();
    const frames: Float32Array[] = [];
    for (let start = 0; start < 2000; start += size) {
      const piece = sound(2000).subarray(start, start + size);
      frames.push(...takeFrames(stream, piece, start + size >= 2000));
    }
    assert.deepEqual(frames, whole);
  }
});

Deno.test("takeFrames() fills the last frame up with silence", () => {
  const frames = takeFrames(newStream(), sound(513), true);
  assert.equal(frames.length, 2);
  assert.deepEqual([...frames[1]!.subarray(64, 67)], [513, 0, 0]);
});

Deno.test("takeFrames() ends an empty stream with a frame", () => {
  assert.equal(takeFrames(newStream(), sound(0), true).length, 1);
  assert.equal(takeFrames(newStream(), sound(0), false).length, 0);
});
