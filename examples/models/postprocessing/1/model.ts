import type {
  InferRequest,
  InferResponse,
  Model,
  ModelContext,
} from "../../../../backends/typescript/model_api.ts";

/** Probabilities -> the name of the likeliest class, and how likely it is. */
export default class Postprocessing implements Model {
  #labels: readonly string[] = [];

  async initialize(context: ModelContext): Promise<void> {
    const text = await Deno.readTextFile(`${context.modelDirectory}/labels.txt`);
    this.#labels = text.trimEnd().split("\n");
  }

  execute(requests: readonly InferRequest[]): InferResponse[] {
    return requests.map((request) => {
      const { shape, data } = request.input("probabilities", "FP32");
      const [rows = 0, classes = 0] = shape;
      const labels: string[] = [];
      const scores = new Float32Array(rows);
      for (let row = 0; row < rows; row++) {
        const probabilities = data.subarray(row * classes, (row + 1) * classes);
        const best = findBest(probabilities);
        labels.push(this.#labels[best] ?? String(best));
        scores[row] = probabilities[best]!;
      }
      return {
        outputs: {
          LABEL: { shape: [rows, 1], data: labels },
          SCORE: { shape: [rows, 1], data: scores },
        },
      };
    });
  }
}

function findBest(probabilities: Float32Array): number {
  let best = 0;
  for (let index = 1; index < probabilities.length; index++) {
    if (probabilities[index]! > probabilities[best]!) best = index;
  }
  return best;
}
