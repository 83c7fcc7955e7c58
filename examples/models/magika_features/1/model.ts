import type {
  InferRequest,
  InferResponse,
  Model,
} from "../../../../backends/typescript/model_api.ts";

/** Numbers of a row: so many bytes of the beginning, as many of the end. */
const ROW_SIZE = 2048;
const HALF = ROW_SIZE / 2;
/** Only so much of each end of a file is looked at. */
const WINDOW = 4096;
/** Stands where a file has no byte. */
const NOTHING = 256;

/** Contents of files -> the bytes that the classifier looks at. */
export default class MagikaFeatures implements Model {
  execute(requests: readonly InferRequest[]): InferResponse[] {
    return requests.map((request) => {
      const files = request.input("CONTENT", "BYTES").data;
      const rows = new Int32Array(files.length * ROW_SIZE).fill(NOTHING);
      for (let index = 0; index < files.length; index++) {
        fillRow(rows.subarray(index * ROW_SIZE, (index + 1) * ROW_SIZE), files.bytes(index));
      }
      return { outputs: { bytes: { shape: [files.length, ROW_SIZE], data: rows } } };
    });
  }
}

/** Puts the ends of `content`, without the white space around it, at the ends of `row`. */
export function fillRow(row: Int32Array, content: Uint8Array): void {
  const first = content.subarray(0, WINDOW);
  let start = 0;
  while (start < first.length && isSpace(first[start]!)) start++;
  row.set(first.subarray(start, start + HALF), 0);
  const last = content.subarray(Math.max(0, content.length - WINDOW));
  let end = last.length;
  while (end > 0 && isSpace(last[end - 1]!)) end--;
  const tail = last.subarray(Math.max(0, end - HALF), end);
  row.set(tail, ROW_SIZE - tail.length);
}

/** Blank, tab, line feed, vertical tab, form feed, carriage return. */
function isSpace(byte: number): boolean {
  return byte === 32 || (byte >= 9 && byte <= 13);
}
