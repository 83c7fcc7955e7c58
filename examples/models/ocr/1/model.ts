import type {
  InferRequest,
  InferResponse,
  Model,
  ModelContext,
  OutputTensor,
  TensorOf,
} from "../../../../backends/typescript/model_api.ts";
import { cropPicture, decodePicture, type Picture, resizePicture, turnPicture } from "./picture.ts";
import { type Box, findTextBoxes } from "./text_boxes.ts";
import { readLine, type TextLine } from "./text_lines.ts";

/** The detector takes sides that are multiples of it. */
const DETECTOR_STEP = 32;
const DETECTOR_MEAN = [0.485, 0.456, 0.406] as const;
const DETECTOR_DEVIATION = [0.229, 0.224, 0.225] as const;
const LINE_HEIGHT = 48;
const MAX_LINE_WIDTH = 4096;
/** The direction classifier looks at the beginning of a line, in this shape. */
const DIRECTION_WIDTH = 192;
const DIRECTION_LINES = 16;
/** Lines that are read at once. */
const LINES_PER_CALL = 8;

/** A picture -> its lines of text: finds them, turns them upright, reads them. */
export default class Ocr implements Model {
  #characters: readonly string[] = [];
  #growth: number | undefined;

  async initialize(context: ModelContext): Promise<void> {
    const file = await Deno.readTextFile(`${context.versionDirectory}/characters.txt`);
    this.#characters = file.split("\n");
    const growth = context.parameters["box_growth"];
    this.#growth = growth === undefined ? undefined : Number(growth);
  }

  async execute(requests: readonly InferRequest[]): Promise<InferResponse[]> {
    return await Promise.all(requests.map((request) => this.#answer(request)));
  }

  async #answer(request: InferRequest): Promise<InferResponse> {
    try {
      const picture = decodePicture(request.input("IMAGE", "BYTES").data.bytes(0));
      const boxes = await findBoxes(request, picture, this.#growth);
      const lines = await this.#readLines(request, boxes.map((box) => cropBox(picture, box)));
      return {
        outputs: {
          TEXT: { shape: [lines.length], data: lines.map(({ text }) => text) },
          SCORE: { shape: [lines.length], data: Float32Array.from(lines, ({ score }) => score) },
          BOX: { shape: [boxes.length, 4], data: Float32Array.from(boxes.flat()) },
        },
      };
    } catch (error) {
      // One broken picture is the error of its own request, not of the batch.
      return { error: error instanceof Error ? error : new Error(String(error)) };
    }
  }

  async #readLines(request: InferRequest, crops: readonly Picture[]): Promise<TextLine[]> {
    if (crops.length === 0) return [];
    const upright = await areTurned(request, crops) ? crops.map(turnPicture) : crops;
    const lines: TextLine[] = [];
    for (let start = 0; start < upright.length; start += LINES_PER_CALL) {
      const part = upright.slice(start, start + LINES_PER_CALL);
      const { shape, data } = await callModel(request, "ocr_rec", lineTensor(part));
      const [rows = 0, steps = 0, classes = 0] = shape;
      for (let row = 0; row < rows; row++) {
        const line = data.subarray(row * steps * classes, (row + 1) * steps * classes);
        lines.push(readLine(line, this.#characters, classes));
      }
    }
    return lines;
  }
}

/** The three models have one input and one output each. */
async function callModel(
  request: InferRequest,
  modelName: string,
  x: OutputTensor,
): Promise<TensorOf<"FP32">> {
  const result = await request.infer(modelName, { inputs: { x } });
  return result.output(Object.keys(result.outputs)[0]!, "FP32");
}

async function findBoxes(
  request: InferRequest,
  picture: Picture,
  growth: number | undefined,
): Promise<Box[]> {
  const width = toStep(picture.width);
  const height = toStep(picture.height);
  const scaled = resizePicture(picture, width, height);
  const { data } = await callModel(request, "ocr_det", detectorTensor(scaled));
  const [scaleX, scaleY] = [width / picture.width, height / picture.height];
  return findTextBoxes(data, width, height, growth).map(([left, top, right, bottom]) =>
    [left / scaleX, top / scaleY, right / scaleX, bottom / scaleY] as const
  );
}

function toStep(side: number): number {
  return Math.max(DETECTOR_STEP, Math.round(side / DETECTOR_STEP) * DETECTOR_STEP);
}

function cropBox(picture: Picture, [left, top, right, bottom]: Box): Picture {
  const [x, y] = [Math.round(left), Math.round(top)];
  // A line is never empty, however small the picture is.
  return cropPicture(picture, [
    x,
    y,
    Math.max(x + 1, Math.round(right)),
    Math.max(y + 1, Math.round(bottom)),
  ]);
}

/** Are the lines upside down? Their beginnings decide together. */
async function areTurned(request: InferRequest, crops: readonly Picture[]): Promise<boolean> {
  const heads = crops.slice(0, DIRECTION_LINES).map((crop) =>
    cropPicture(crop, [0, 0, Math.min(crop.width, 4 * crop.height), crop.height])
  );
  const { data } = await callModel(request, "ocr_cls", lineTensor(heads, DIRECTION_WIDTH));
  const turned = data.filter((_, index) => index % 2 === 1);
  return turned.reduce((sum, value) => sum + value, 0) / turned.length > 0.5;
}

/** Channels in the order blue, green, red, as in all three models. */
function detectorTensor({ width, height, pixels }: Picture): OutputTensor {
  const size = width * height;
  const data = new Float32Array(3 * size);
  for (let channel = 0; channel < 3; channel++) {
    const [mean, deviation] = [DETECTOR_MEAN[channel]!, DETECTOR_DEVIATION[channel]!];
    for (let index = 0; index < size; index++) {
      data[channel * size + index] = (pixels[index * 3 + 2 - channel]! / 255 - mean) / deviation;
    }
  }
  return { shape: [1, 3, height, width], data };
}

/** Lines of one height, zeros to the right of the shorter ones; none is wider than `width`. */
function lineTensor(crops: readonly Picture[], width?: number): OutputTensor {
  const lines = crops.map((crop) => {
    const scaled = Math.max(1, Math.round(LINE_HEIGHT * crop.width / crop.height));
    return resizePicture(crop, Math.min(width ?? MAX_LINE_WIDTH, scaled), LINE_HEIGHT);
  });
  const full = width ?? Math.max(...lines.map((line) => line.width));
  const data = new Float32Array(lines.length * 3 * LINE_HEIGHT * full);
  lines.forEach((line, row) => {
    for (let channel = 0; channel < 3; channel++) {
      for (let y = 0; y < LINE_HEIGHT; y++) {
        const to = ((row * 3 + channel) * LINE_HEIGHT + y) * full;
        for (let x = 0; x < line.width; x++) {
          const value = line.pixels[(y * line.width + x) * 3 + 2 - channel]!;
          data[to + x] = (value / 255 - 0.5) / 0.5;
        }
      }
    }
  });
  return { shape: [lines.length, 3, LINE_HEIGHT, full], data };
}
