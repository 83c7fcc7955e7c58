import assert from "node:assert/strict";
import { RunPace, type RunShape } from "./run_pace.ts";

const NAMES = { inputNames: ["A", "B"], outputNames: ["Y"] };

/** A run with two FP32 inputs of these shapes. */
function pair(a: readonly number[], b: readonly number[]): RunShape {
  const count = (dims: readonly number[]) => dims.reduce((product, dim) => product * dim, 1);
  return { ...NAMES, shapes: [a, b], byteSize: 4 * (count(a) + count(b)) };
}

/** A run with so many bytes in each of two inputs. */
function sized(byteSize: number): RunShape {
  return pair([byteSize / 4], [byteSize / 4]);
}

function learn(pace: RunPace, run: RunShape, elapsedMs = 0.05): void {
  for (let count = 0; count < 8; count++) pace.recordPooled(run, elapsedMs);
}

Deno.test("RunPace lets sizes block that were short several times, and no larger ones", () => {
  const pace = new RunPace(true);
  assert.equal(pace.mayBlock(sized(64)), false);
  learn(pace, sized(64));
  assert.equal(pace.mayBlock(sized(64)), true);
  assert.equal(pace.mayBlock(sized(68)), false);
  learn(pace, sized(4096));
  assert.equal(pace.mayBlock(sized(4096)), true);
});

Deno.test("RunPace never lets a model block whose time depends on its inputs' values", () => {
  const pace = new RunPace(false);
  learn(pace, sized(64));
  assert.equal(pace.mayBlock(sized(64)), false);
});

Deno.test("RunPace does not learn from long runs and large inputs", () => {
  const pace = new RunPace(true);
  learn(pace, sized(64), 1);
  assert.equal(pace.mayBlock(sized(64)), false);
  learn(pace, sized(2_000_000));
  assert.equal(pace.mayBlock(sized(2_000_000)), false);
});

Deno.test("RunPace forgives some long runs among short ones", () => {
  const pace = new RunPace(true);
  learn(pace, sized(64));
  for (let run = 0; run < 50; run++) pace.recordBlocking(sized(64), run % 8 === 0 ? 5 : 0.008);
  assert.equal(pace.mayBlock(sized(64)), true);
});

Deno.test("RunPace ends blocking after long runs, each time for longer", () => {
  const pace = new RunPace(true);
  learn(pace, sized(64));
  pace.recordBlocking(sized(64), 5);
  assert.equal(pace.mayBlock(sized(64)), true);
  for (let run = 0; run < 3; run++) pace.recordBlocking(sized(64), 5);
  assert.equal(pace.mayBlock(sized(64)), false);
  for (let run = 0; run < 256; run++) pace.recordPooled(sized(64), 0.05);
  learn(pace, sized(64));
  assert.equal(pace.mayBlock(sized(64)), true);
  for (let run = 0; run < 4; run++) pace.recordBlocking(sized(64), 5);
  for (let run = 0; run < 256 + 8; run++) pace.recordPooled(sized(64), 0.05);
  assert.equal(pace.mayBlock(sized(64)), false);
});

Deno.test("RunPace looks at every dimension: the same bytes may be far more work", () => {
  const pace = new RunPace(true);
  learn(pace, pair([100, 100], [100, 100]));
  assert.equal(pace.mayBlock(pair([100, 1], [1, 100])), true);
  assert.equal(pace.mayBlock(pair([5000, 1], [1, 5000])), false);
  assert.equal(pace.mayBlock(pair([1, 10_000], [10_000])), false);
  learn(pace, pair([1, 200], [1, 200]));
  assert.equal(pace.mayBlock(pair([1, 150], [1, 200])), true);
});

Deno.test("RunPace knows only the inputs and outputs that it saw together", () => {
  const pace = new RunPace(true);
  learn(pace, sized(64));
  assert.equal(pace.mayBlock({ ...sized(64), inputNames: ["A", "C"] }), false);
  assert.equal(pace.mayBlock({ ...sized(64), outputNames: ["Z"] }), false);
});

Deno.test("RunPace allows runs on many bytes more time", () => {
  for (const [byteSize, isAllowed] of [[64, false], [300_000, true]] as const) {
    const pace = new RunPace(true);
    const run = sized(byteSize);
    learn(pace, run);
    for (let count = 0; count < 50; count++) pace.recordBlocking(run, 0.09);
    assert.equal(pace.mayBlock(run), isAllowed);
  }
});

Deno.test("RunPace lets longer runs block where that holds up nobody", () => {
  const patient = new RunPace(true, 5);
  const run = sized(64);
  learn(patient, run, 4);
  for (let count = 0; count < 100; count++) patient.recordBlocking(run, 4);
  assert.ok(patient.mayBlock(run));
  for (let count = 0; count < 100; count++) patient.recordBlocking(run, 6);
  assert.ok(!patient.mayBlock(run));
});
