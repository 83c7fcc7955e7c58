import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { encode as encodeJpeg } from "npm:jpeg-js@0.4.4";
import pngjs from "npm:pngjs@7.0.0";
import { cropPicture, decodePicture, type Picture, resizePicture, turnPicture } from "./picture.ts";

/** 7 × 5 pixels, every value another one. */
const PICTURE: Picture = {
  width: 7,
  height: 5,
  pixels: Uint8Array.from({ length: 105 }, (_, index) => (index * 37) % 256),
};

function toRgba({ width, height, pixels }: Picture): Buffer {
  const rgba = Buffer.alloc(width * height * 4, 128);
  for (let index = 0; index < width * height; index++) {
    rgba.set(pixels.subarray(index * 3, index * 3 + 3), index * 4);
  }
  return rgba;
}

function toPng(picture: Picture): Uint8Array {
  const { width, height } = picture;
  const png = new pngjs.PNG({ width, height });
  png.data = toRgba(picture);
  return pngjs.PNG.sync.write(png);
}

Deno.test("decodePicture() reads a PNG file and drops its opacity", () => {
  assert.deepEqual(decodePicture(toPng(PICTURE)), PICTURE);
});

Deno.test("decodePicture() reads a file in shared memory", () => {
  const file = toPng(PICTURE);
  const shared = new Uint8Array(new SharedArrayBuffer(file.length));
  shared.set(file);
  assert.deepEqual(decodePicture(shared), PICTURE);
});

Deno.test("decodePicture() reads a JPEG file", () => {
  const grey: Picture = { width: 16, height: 8, pixels: new Uint8Array(16 * 8 * 3).fill(90) };
  const { data } = encodeJpeg({ width: 16, height: 8, data: toRgba(grey) }, 95);
  const { width, height, pixels } = decodePicture(data);
  assert.deepEqual([width, height, pixels.length], [16, 8, 384]);
  assert.ok(pixels.every((value) => Math.abs(value - 90) <= 2));
});

Deno.test("decodePicture() refuses what is no picture", () => {
  const refused = (file: Uint8Array, pattern: RegExp) =>
    assert.throws(() => decodePicture(file), pattern);
  refused(new TextEncoder().encode("no picture"), /cannot identify image file: its 10 bytes/);
  refused(new Uint8Array(), /cannot identify image file/);
  refused(toPng(PICTURE).subarray(0, 12), /Cannot identify image file/);
  refused(toPng(PICTURE).subarray(0, 60), /./);
  refused(Uint8Array.of(0xff, 0xd8, 0xff, 0xe0), /./);
});

Deno.test("decodePicture() refuses a picture that is too large before it decodes it", () => {
  const file = Uint8Array.from(toPng(PICTURE));
  new DataView(file.buffer).setUint32(16, 1_000_000);
  new DataView(file.buffer).setUint32(20, 1_000_000);
  assert.throws(() => decodePicture(file), /1000000 x 1000000 pixels, at most 50 million/);
});

Deno.test("cropPicture() takes a part; what lies outside is black", () => {
  const part = cropPicture(PICTURE, [5, -1, 8, 1]);
  assert.deepEqual([part.width, part.height], [3, 2]);
  assert.deepEqual([...part.pixels.subarray(0, 9)], Array(9).fill(0));
  assert.deepEqual([...part.pixels.subarray(9, 15)], [...PICTURE.pixels.subarray(15, 21)]);
  assert.deepEqual([...part.pixels.subarray(15)], [0, 0, 0]);
});

Deno.test("turnPicture() turns by 180 degrees", () => {
  const turned = turnPicture(PICTURE);
  assert.deepEqual([...turned.pixels.subarray(0, 3)], [...PICTURE.pixels.subarray(102)]);
  assert.deepEqual(turnPicture(turned), PICTURE);
});

// Pillow 13 gives these; its fixed-point arithmetic may differ by 1.
const RESIZED: readonly (readonly [number, number, readonly number[], number])[] = [
  [3, 2, [104, 86, 123, 146, 123, 100, 123, 160, 142, 105, 104, 141], 2275],
  [14, 5, [0, 37, 74, 28, 65, 102, 83, 120, 157, 139, 112, 149], 26184],
  [7, 11, [0, 37, 74, 111, 148, 185, 222, 3, 40, 77, 114, 151], 28818],
  [2, 8, [116, 88, 107, 121, 140, 112, 120, 92, 111, 125, 144, 116], 5994],
];

for (const [width, height, first, sum] of RESIZED) {
  Deno.test(`resizePicture() gives Pillow's pixels at ${width} x ${height}`, () => {
    const { pixels } = resizePicture(PICTURE, width, height);
    assert.equal(pixels.length, width * height * 3);
    first.forEach((value, index) => assert.ok(Math.abs(pixels[index]! - value) <= 1));
    assert.ok(Math.abs(pixels.reduce((total, value) => total + value, 0) - sum) <= 2);
  });
}

Deno.test("picture.ts is the same in both models that have it: a model's folder stands alone", async () => {
  const read = (model: string) =>
    Deno.readTextFile(new URL(`../../${model}/1/picture.ts`, import.meta.url));
  assert.equal(await read("preprocessing"), await read("ocr"));
});
