import type {
  InferRequest,
  InferResponse,
  Model,
} from "../../../../backends/typescript/model_api.ts";

/** Vectors of tokens -> one vector per text. */
export default class MinilmPool implements Model {
  execute(requests: readonly InferRequest[]): InferResponse[] {
    return requests.map((request) => {
      const { shape, data } = request.input("last_hidden_state", "FP32");
      const mask = request.input("attention_mask", "INT64").data;
      const [rows = 0, tokens = 0, size = 0] = shape;
      const vectors = new Float32Array(rows * size);
      for (let row = 0; row < rows; row++) {
        const vector = vectors.subarray(row * size, (row + 1) * size);
        for (let token = row * tokens; token < (row + 1) * tokens; token++) {
          // Padding says nothing about the text.
          if (mask[token] !== 0n) addTo(vector, data.subarray(token * size, (token + 1) * size));
        }
        normalize(vector);
      }
      return { outputs: { EMBEDDING: { shape: [rows, size], data: vectors } } };
    });
  }
}

function addTo(sum: Float32Array, vector: Float32Array): void {
  for (let index = 0; index < sum.length; index++) sum[index]! += vector[index]!;
}

/** The length of a mean does not matter, so that the sum need not be divided first. */
function normalize(vector: Float32Array): void {
  const length = Math.hypot(...vector) || 1;
  for (let index = 0; index < vector.length; index++) vector[index]! /= length;
}
