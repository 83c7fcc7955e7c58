import assert from "node:assert/strict";
import { findTextBoxes } from "./text_boxes.ts";

const WIDTH = 64;
const HEIGHT = 32;

/** A map with rectangles of one probability: left, top, width, height, probability. */
function mapOf(...parts: readonly (readonly [number, number, number, number, number])[]) {
  const map = new Float32Array(WIDTH * HEIGHT);
  for (const [left, top, width, height, value] of parts) {
    for (let y = top; y < top + height; y++) {
      map.fill(value, y * WIDTH + left, y * WIDTH + left + width);
    }
  }
  return map;
}

Deno.test("findTextBoxes() grows a part by 1.6 times area through circumference", () => {
  const [box, ...others] = findTextBoxes(mapOf([20, 10, 20, 5, 0.9]), WIDTH, HEIGHT);
  const edge = 20 * 5 * 1.6 / 50;
  assert.deepEqual(box, [20 - edge, 10 - edge, 40 + edge, 15 + edge]);
  assert.deepEqual(others, []);
});

Deno.test("findTextBoxes() keeps boxes within the map", () => {
  const [box] = findTextBoxes(mapOf([0, 0, WIDTH, HEIGHT, 0.9]), WIDTH, HEIGHT);
  assert.deepEqual(box, [0, 0, WIDTH, HEIGHT]);
});

Deno.test("findTextBoxes() drops small and unsure parts", () => {
  const map = mapOf([2, 2, 11, 1, 0.9], [20, 10, 20, 5, 0.4], [20, 20, 20, 5, 0.3]);
  assert.deepEqual(findTextBoxes(map, WIDTH, HEIGHT), []);
});

Deno.test("findTextBoxes() takes corners that touch for two parts, and the edge of a row for no link", () => {
  const touching = mapOf([0, 0, 8, 4, 0.9], [8, 4, 8, 4, 0.9]);
  assert.equal(findTextBoxes(touching, WIDTH, HEIGHT).length, 2);
  const edges = mapOf([WIDTH - 4, 0, 4, 4, 0.9], [0, 1, 4, 4, 0.9]);
  assert.equal(findTextBoxes(edges, WIDTH, HEIGHT).length, 2);
});

Deno.test("findTextBoxes() orders by row, then from left to right", () => {
  const map = mapOf([40, 2, 10, 4, 0.9], [4, 20, 10, 4, 0.9], [4, 3, 10, 4, 0.9]);
  const starts = findTextBoxes(map, WIDTH, HEIGHT).map(([left, top]) => [left < 20, top < 10]);
  assert.deepEqual(starts, [[true, true], [false, true], [true, false]]);
});
