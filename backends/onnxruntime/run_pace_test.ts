import assert from "node:assert/strict";
import { RunPace } from "./run_pace.ts";

function learn(pace: RunPace, byteSize: number, elapsedMs = 0.05): void {
  for (let run = 0; run < 8; run++) pace.recordPooled(byteSize, elapsedMs);
}

Deno.test("RunPace lets sizes block that were short several times, and no larger ones", () => {
  const pace = new RunPace(true);
  assert.equal(pace.mayBlock(64), false);
  learn(pace, 64);
  assert.equal(pace.mayBlock(64), true);
  assert.equal(pace.mayBlock(65), false);
  learn(pace, 4096);
  assert.equal(pace.mayBlock(4096), true);
});

Deno.test("RunPace never lets a model block whose time depends on its inputs' values", () => {
  const pace = new RunPace(false);
  learn(pace, 64);
  assert.equal(pace.mayBlock(64), false);
});

Deno.test("RunPace does not learn from long runs and large inputs", () => {
  const pace = new RunPace(true);
  learn(pace, 64, 1);
  assert.equal(pace.mayBlock(64), false);
  learn(pace, 2_000_000);
  assert.equal(pace.mayBlock(2_000_000), false);
});

Deno.test("RunPace forgives some long runs among short ones", () => {
  const pace = new RunPace(true);
  learn(pace, 64);
  for (let run = 0; run < 50; run++) pace.recordBlocking(run % 8 === 0 ? 5 : 0.008);
  assert.equal(pace.mayBlock(64), true);
});

Deno.test("RunPace ends blocking after long runs, each time for longer", () => {
  const pace = new RunPace(true);
  learn(pace, 64);
  pace.recordBlocking(5);
  assert.equal(pace.mayBlock(64), true);
  for (let run = 0; run < 3; run++) pace.recordBlocking(5);
  assert.equal(pace.mayBlock(64), false);
  for (let run = 0; run < 256; run++) pace.recordPooled(64, 0.05);
  learn(pace, 64);
  assert.equal(pace.mayBlock(64), true);
  for (let run = 0; run < 4; run++) pace.recordBlocking(5);
  for (let run = 0; run < 256 + 8; run++) pace.recordPooled(64, 0.05);
  assert.equal(pace.mayBlock(64), false);
});
