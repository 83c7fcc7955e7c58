/** Left, top, right, bottom in pixels. */
export type Box = readonly [number, number, number, number];

/** Pixels of the map above it belong to text. */
const PIXEL_THRESHOLD = Math.fround(0.3);
/** A part is text if its pixels have this mean. */
const MEAN_THRESHOLD = 0.5;
/** Smaller parts are dirt. */
const MIN_PIXELS = 12;
/** The map shows the inner part of a line only: boxes are grown by this times area / circumference. */
const DEFAULT_GROWTH = 1.6;
/** Boxes whose tops are so near belong to one row. */
const ROW_HEIGHT = 10;

/** The boxes around connected parts of a map of text (probabilities, row-major), in reading order. */
export function findTextBoxes(
  map: Float32Array,
  width: number,
  height: number,
  growth: number = DEFAULT_GROWTH,
): Box[] {
  const open = Uint8Array.from(map, (value) => value > PIXEL_THRESHOLD ? 1 : 0);
  const boxes: Box[] = [];
  for (let start = open.indexOf(1); start >= 0; start = open.indexOf(1, start + 1)) {
    const part = takePart({ map, open, width, height }, start);
    if (part.count >= MIN_PIXELS && part.sum / part.count >= MEAN_THRESHOLD) {
      boxes.push(growBox(part.box, { width, height, growth }));
    }
  }
  const keys = new Map(boxes.map((box) => [box, Math.round(box[1] / ROW_HEIGHT)]));
  return boxes.sort((a, b) => keys.get(a)! - keys.get(b)! || a[0] - b[0]);
}

interface TextMap {
  readonly map: Float32Array;
  /** 1 = text that belongs to no part yet. */
  readonly open: Uint8Array;
  readonly width: number;
  readonly height: number;
}

interface Part {
  readonly box: Box;
  readonly count: number;
  readonly sum: number;
}

/** Takes the pixels that are connected with `start` (by an edge) out of `open`. */
function takePart({ map, open, width, height }: TextMap, start: number): Part {
  const waiting = [start];
  open[start] = 0;
  let [left, top, right, bottom] = [width, height, 0, 0];
  let [count, sum] = [0, 0];
  const visit = (pixel: number): void => {
    if (open[pixel] !== 1) return;
    open[pixel] = 0;
    waiting.push(pixel);
  };
  for (let pixel = waiting.pop(); pixel !== undefined; pixel = waiting.pop()) {
    const x = pixel % width;
    const y = (pixel - x) / width;
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
    count++;
    sum += map[pixel]!;
    if (x > 0) visit(pixel - 1);
    if (x + 1 < width) visit(pixel + 1);
    if (y > 0) visit(pixel - width);
    if (y + 1 < height) visit(pixel + width);
  }
  return { box: [left, top, right, bottom], count, sum };
}

interface Growth {
  readonly width: number;
  readonly height: number;
  readonly growth: number;
}

function growBox([left, top, right, bottom]: Box, { width, height, growth }: Growth): Box {
  const [wide, high] = [right - left, bottom - top];
  const edge = (wide * high * growth) / (2 * (wide + high));
  return [
    Math.max(0, left - edge),
    Math.max(0, top - edge),
    Math.min(width, right + edge),
    Math.min(height, bottom + edge),
  ];
}
