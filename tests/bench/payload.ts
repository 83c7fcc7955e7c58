import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import type { LoadJob, Way } from "./load_job.ts";

/** What is sent: FP32 tensors to one model. */
export interface Payload {
  readonly title: string;
  readonly model: string;
  readonly inputName: string;
  /** Further inputs, with the same values. */
  readonly moreInputs?: readonly string[];
  readonly outputName: string;
  readonly shape: readonly number[];
}

/** Request of one payload on one way, as a load job without its numbers. */
export type RequestParts = Pick<
  LoadJob,
  "way" | "path" | "headers" | "bodyFile" | "responsesPerRequest" | "isSequence"
>;

const SERVICE = "/inference.GRPCInferenceService";

/** Values between −1 and 1 that are the same in every run. */
export function rampValues(shape: readonly number[]): Float32Array<ArrayBuffer> {
  const count = shape.reduce((product, size) => product * size, 1);
  return Float32Array.from({ length: count }, (_, index) => ((index * 37) % 255) / 127.5 - 1);
}

/** Writes the body of a payload for one way into `directory`. */
export async function writeRequest(
  payload: Payload,
  way: Way,
  directory: string,
): Promise<RequestParts> {
  const bodyFile = join(directory, `${payload.model}-${way}.bin`);
  const values = rampValues(payload.shape);
  const httpPath = `/v2/models/${payload.model}/infer`;
  const names = [payload.inputName, ...payload.moreInputs ?? []];
  const inputs = names.map((name) => ({ name, datatype: "FP32", shape: payload.shape }));
  if (way === "http-json") {
    const data = Array.from(values, (value) => Number(value.toPrecision(7)));
    await Deno.writeTextFile(
      bodyFile,
      JSON.stringify({ inputs: inputs.map((input) => ({ ...input, data })) }),
    );
    return { way, path: httpPath, headers: [["content-type", "application/json"]], bodyFile };
  }
  const bytes = new Uint8Array(values.buffer);
  if (way === "http-binary") {
    const head = new TextEncoder().encode(JSON.stringify({
      inputs: inputs.map((input) => ({
        ...input,
        parameters: { binary_data_size: bytes.length },
      })),
      parameters: { binary_data_output: true },
    }));
    const body = new Uint8Array(head.length + inputs.length * bytes.length);
    body.set(head);
    inputs.forEach((_, index) => body.set(bytes, head.length + index * bytes.length));
    await Deno.writeFile(bodyFile, body);
    const headers = [
      ["content-type", "application/octet-stream"],
      ["inference-header-content-length", String(head.length)],
    ] as const;
    return { way, path: httpPath, headers, bodyFile };
  }
  const message = create(ModelInferRequestSchema, {
    modelName: payload.model,
    inputs: inputs.map((input) => ({ ...input, shape: payload.shape.map(BigInt) })),
    rawInputContents: inputs.map(() => bytes),
  });
  await Deno.writeFile(bodyFile, toBinary(ModelInferRequestSchema, message));
  const method = way === "grpc" ? "ModelInfer" : "ModelStreamInfer";
  return { way, path: `${SERVICE}/${method}`, headers: [], bodyFile };
}
