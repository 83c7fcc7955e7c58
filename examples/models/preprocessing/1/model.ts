import type {
  InferRequest,
  InferResponse,
  Model,
} from "../../../../backends/typescript/model_api.ts";
import { cropPicture, decodePicture, type Picture, resizePicture } from "./picture.ts";

const SIDE = 224;
/** The classifier was trained on the middle of pictures whose shorter side is this. */
const FULL_SIDE = 256;
const PIXELS = SIDE * SIDE;

/** Picture files -> pixels as the classifier takes them. */
export default class Preprocessing implements Model {
  execute(requests: readonly InferRequest[]): InferResponse[] {
    return requests.map((request) => {
      try {
        const files = request.input("IMAGE", "BYTES").data;
        const data = new Float32Array(files.length * 3 * PIXELS);
        for (let index = 0; index < files.length; index++) {
          const row = data.subarray(index * 3 * PIXELS, (index + 1) * 3 * PIXELS);
          fillRow(row, cutMiddle(decodePicture(files.bytes(index))));
        }
        return { outputs: { image: { shape: [files.length, 3, SIDE, SIDE], data } } };
      } catch (error) {
        // One broken picture is the error of its own request, not of the batch.
        return { error: error instanceof Error ? error : new Error(String(error)) };
      }
    });
  }
}

function cutMiddle(picture: Picture): Picture {
  const { width, height } = picture;
  const side = Math.max(1, Math.trunc(Math.min(width, height) * SIDE / FULL_SIDE));
  const left = Math.floor((width - side) / 2);
  const top = Math.floor((height - side) / 2);
  return resizePicture(
    cropPicture(picture, [left, top, left + side, top + side]),
    SIDE,
    SIDE,
  );
}

/** All red values, then all green ones, then all blue ones. */
function fillRow(row: Float32Array, { pixels }: Picture): void {
  for (let channel = 0; channel < 3; channel++) {
    for (let index = 0; index < PIXELS; index++) {
      row[channel * PIXELS + index] = (pixels[index * 3 + channel]! - 127) / 128;
    }
  }
}
