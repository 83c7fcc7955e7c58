import { Buffer } from "node:buffer";
import { decode as decodeJpeg } from "npm:jpeg-js@0.4.4";
import pngjs from "npm:pngjs@7.0.0";

/** A picture in memory: rows from top to bottom, 3 bytes (red, green, blue) per pixel. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly pixels: Uint8Array;
}

/** The part of the library that is used here; it comes without types. */
interface PngLibrary {
  readonly PNG: {
    readonly sync: {
      /** 4 bytes (red, green, blue, opacity) per pixel. */
      read(file: Buffer): {
        readonly width: number;
        readonly height: number;
        readonly data: Uint8Array;
      };
    };
  };
}

const CHANNELS = 3;
const MAX_MEGAPIXELS = 50;
const MAX_DECODER_MEGABYTES = 1024;
const PNG_HEADER_BYTES = 24;
const PNG_SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const JPEG_SIGNATURE = [0xff, 0xd8, 0xff];

/** Decodes a PNG or JPEG file; transparency is dropped. @throws Error for anything else. */
export function decodePicture(file: Uint8Array): Picture {
  if (startsWith(file, PNG_SIGNATURE)) return decodePng(file);
  if (startsWith(file, JPEG_SIGNATURE)) return decodeJpegFile(file);
  throw new Error(
    `cannot identify image file: its ${file.length} bytes begin like neither PNG nor JPEG`,
  );
}

function startsWith(file: Uint8Array, signature: readonly number[]): boolean {
  return signature.every((byte, index) => file[index] === byte);
}

function decodePng(file: Uint8Array): Picture {
  // A copy: the request's memory is shared, which the decoder does not take.
  const bytes = Buffer.from(file);
  if (bytes.length < PNG_HEADER_BYTES) {
    throw new Error("Cannot identify image file: the PNG file ends within its header");
  }
  checkSize(bytes.readUInt32BE(16), bytes.readUInt32BE(20));
  const { width, height, data } = (pngjs as PngLibrary).PNG.sync.read(bytes);
  return { width, height, pixels: dropAlpha(data, width * height) };
}

function decodeJpegFile(file: Uint8Array): Picture {
  const { width, height, data } = decodeJpeg(file.slice(), {
    useTArray: true,
    formatAsRGBA: false,
    maxResolutionInMP: MAX_MEGAPIXELS,
    maxMemoryUsageInMB: MAX_DECODER_MEGABYTES,
  });
  return { width, height, pixels: data };
}

function checkSize(width: number, height: number): void {
  if (width * height > MAX_MEGAPIXELS * 1e6) {
    throw new Error(
      `the picture has ${width} x ${height} pixels, at most ${MAX_MEGAPIXELS} million are allowed`,
    );
  }
}

function dropAlpha(rgba: Uint8Array, count: number): Uint8Array {
  const pixels = new Uint8Array(count * CHANNELS);
  for (let index = 0; index < count; index++) {
    pixels[index * CHANNELS] = rgba[index * 4]!;
    pixels[index * CHANNELS + 1] = rgba[index * 4 + 1]!;
    pixels[index * CHANNELS + 2] = rgba[index * 4 + 2]!;
  }
  return pixels;
}

/** A part of a picture; the edges are whole pixels, and what lies outside is black. */
export function cropPicture(
  picture: Picture,
  [left, top, right, bottom]: readonly [number, number, number, number],
): Picture {
  const width = Math.max(0, right - left);
  const height = Math.max(0, bottom - top);
  const pixels = new Uint8Array(width * height * CHANNELS);
  const first = Math.max(0, left);
  const last = Math.min(picture.width, right);
  for (let y = Math.max(0, top); y < Math.min(picture.height, bottom) && first < last; y++) {
    const from = (y * picture.width + first) * CHANNELS;
    const row = picture.pixels.subarray(from, from + (last - first) * CHANNELS);
    pixels.set(row, ((y - top) * width + first - left) * CHANNELS);
  }
  return { width, height, pixels };
}

/** The picture turned by 180 degrees. */
export function turnPicture({ width, height, pixels }: Picture): Picture {
  const turned = new Uint8Array(pixels.length);
  for (let from = 0; from < pixels.length; from += CHANNELS) {
    const to = pixels.length - CHANNELS - from;
    turned.set(pixels.subarray(from, from + CHANNELS), to);
  }
  return { width, height, pixels: turned };
}

/** Scales with a linear filter that is as wide as the source pixels of one target pixel, as Pillow's BILINEAR. */
export function resizePicture(picture: Picture, width: number, height: number): Picture {
  const wide = width === picture.width ? picture : {
    width,
    height: picture.height,
    pixels: resample(picture.pixels, {
      lines: picture.height,
      lineStep: picture.width * CHANNELS,
      from: picture.width,
      to: width,
      step: CHANNELS,
    }),
  };
  if (height === wide.height) return wide;
  const pixels = resample(wide.pixels, {
    lines: width,
    lineStep: CHANNELS,
    from: wide.height,
    to: height,
    step: width * CHANNELS,
  });
  return { width, height, pixels };
}

interface Axis {
  /** Lines along the axis, and bytes from one to the next. */
  readonly lines: number;
  readonly lineStep: number;
  /** Pixels of a line before and after, and bytes from one to the next. */
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

function resample(source: Uint8Array, axis: Axis): Uint8Array {
  const isRow = axis.step === CHANNELS;
  const target = new Uint8Array(axis.lines * axis.to * CHANNELS);
  const lineStep = isRow ? axis.to * CHANNELS : axis.lineStep;
  for (let place = 0; place < axis.to; place++) {
    const { first, weights } = filterAt(place, axis.from, axis.to);
    for (let line = 0; line < axis.lines; line++) {
      const start = line * axis.lineStep + first * axis.step;
      const end = line * lineStep + place * axis.step;
      for (let channel = 0; channel < CHANNELS; channel++) {
        let sum = 0.5;
        for (let index = 0; index < weights.length; index++) {
          sum += weights[index]! * source[start + index * axis.step + channel]!;
        }
        target[end + channel] = Math.min(255, Math.floor(sum));
      }
    }
  }
  return target;
}

/** The source pixels of target pixel `place`, and what each of them counts. */
function filterAt(place: number, from: number, to: number): { first: number; weights: number[] } {
  const scale = from / to;
  const reach = Math.max(1, scale);
  const center = (place + 0.5) * scale;
  const first = Math.max(0, Math.trunc(center - reach + 0.5));
  const end = Math.min(from, Math.trunc(center + reach + 0.5));
  const weights: number[] = [];
  for (let index = first; index < end; index++) {
    weights.push(Math.max(0, 1 - Math.abs((index - center + 0.5) / reach)));
  }
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return { first, weights: weights.map((weight) => weight / sum) };
}
