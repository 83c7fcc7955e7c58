import type {
  InferRequest,
  InferResponse,
  Model,
} from "../../../../backends/typescript/model_api.ts";

/** Pictures -> what they show, by three calls of other models. */
export default class ImageLabel implements Model {
  async execute(requests: readonly InferRequest[]): Promise<InferResponse[]> {
    return await Promise.all(requests.map(answer));
  }
}

async function answer(request: InferRequest): Promise<InferResponse> {
  try {
    const pictures = await request.infer("preprocessing", {
      inputs: { IMAGE: request.input("IMAGE", "BYTES") },
    });
    const classes = await request.infer("efficientnet_lite0", {
      inputs: { image: pictures.output("image", "FP32") },
    });
    const labels = await request.infer("postprocessing", {
      inputs: { probabilities: classes.output("probabilities", "FP32") },
    });
    return {
      outputs: { LABEL: labels.output("LABEL", "BYTES"), SCORE: labels.output("SCORE", "FP32") },
    };
  } catch (error) {
    // One broken picture is the error of its own request, not of the batch.
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }
}
