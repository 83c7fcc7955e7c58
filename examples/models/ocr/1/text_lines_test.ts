import assert from "node:assert/strict";
import { readLine } from "./text_lines.ts";

const CHARACTERS = ["a", "b"];
/** Nothing, a, b, and one class more, which is a blank. */
const CLASSES = 4;

function stepsOf(...steps: readonly (readonly [number, number])[]): Float32Array {
  const values = new Float32Array(steps.length * CLASSES);
  steps.forEach(([best, value], index) => values[index * CLASSES + best] = value);
  return values;
}

Deno.test("readLine() joins repeated classes, nothing in between parts them", () => {
  const steps = stepsOf([0, 1], [1, 1], [1, 1], [0, 1], [1, 1], [2, 1], [3, 1], [2, 1]);
  assert.deepEqual(readLine(steps, CHARACTERS, CLASSES), { text: "aab b", score: 1 });
});

Deno.test("readLine() scores a line by the mean of its characters", () => {
  const steps = stepsOf([1, 0.5], [1, 0.25], [2, 0.75], [0, 0.125]);
  assert.deepEqual(readLine(steps, CHARACTERS, CLASSES), { text: "ab", score: 0.625 });
});

Deno.test("readLine() reads nothing out of nothing", () => {
  assert.deepEqual(readLine(stepsOf([0, 1], [0, 1]), CHARACTERS, CLASSES), { text: "", score: 0 });
  assert.deepEqual(readLine(new Float32Array(), CHARACTERS, CLASSES), { text: "", score: 0 });
});
