import { dirname, join } from "node:path";
import { buildModel, ONNX_DATA_TYPE } from "../fixtures/onnx_builder.ts";
import type { Payload } from "./payload.ts";

const PROJECT = join(import.meta.dirname!, "..", "..");
const REAL_MODEL = join(PROJECT, "examples", "model_repository", "ocr_cls", "1", "model.onnx");

export const SMALL: Payload = {
  title: "FP32[16] identity",
  model: "identity_16",
  inputName: "IN",
  outputName: "OUT",
  shape: [16],
};
export const LARGE: Payload = {
  title: "602,112-byte tensor",
  model: "identity_150528",
  inputName: "IN",
  outputName: "OUT",
  shape: [150_528],
};
export const MEGABYTES: Payload = {
  title: "10 MB tensor",
  model: "identity_2500000",
  inputName: "IN",
  outputName: "OUT",
  shape: [2_500_000],
};
export const REAL: Payload = {
  title: "PP-OCR direction classifier",
  model: "ocr_cls",
  inputName: "x",
  outputName: "softmax_0.tmp_0",
  shape: [1, 3, 48, 192],
};

/** One instance, one thread of the runtime: the same as the bare loop. */
const CONFIG = `backend: "onnxruntime"
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
`;

/** File of a payload's model inside a repository. */
export function modelFile(repository: string, payload: Payload): string {
  return join(repository, payload.model, "1", "model.onnx");
}

/** Writes the repository; returns the payloads it serves (the real model only where the demo has fetched it). */
export async function writeBenchRepository(repository: string): Promise<Payload[]> {
  for (const payload of [SMALL, LARGE, MEGABYTES]) {
    const tensor = (name: string) => ({ name, type: ONNX_DATA_TYPE.FLOAT, dims: payload.shape });
    const model = buildModel({
      nodes: [{ op: "Identity", inputs: [payload.inputName], outputs: [payload.outputName] }],
      inputs: [tensor(payload.inputName)],
      outputs: [tensor(payload.outputName)],
    });
    await writeModel(modelFile(repository, payload), model, CONFIG);
  }
  const real = await Deno.readFile(REAL_MODEL).catch(() => undefined);
  if (real === undefined) return [SMALL, LARGE];
  await writeModel(modelFile(repository, REAL), real, CONFIG + "max_batch_size: 1\n");
  return [SMALL, LARGE, REAL];
}

async function writeModel(file: string, bytes: Uint8Array, config: string): Promise<void> {
  await Deno.mkdir(dirname(file), { recursive: true });
  await Deno.writeFile(file, bytes);
  await Deno.writeTextFile(join(dirname(file), "..", "config.pbtxt"), config);
}

const PYTHON_ECHO = `import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(output_tensors=[
            pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())]) for r in requests]
`;

/** Writes the identities as Python models, for the real server, which has no ONNX backend. */
export async function writeReferenceRepository(repository: string): Promise<void> {
  for (const { model, shape } of [SMALL, LARGE]) {
    const version = join(repository, model, "1");
    await Deno.mkdir(version, { recursive: true });
    await Deno.writeTextFile(join(version, "model.py"), PYTHON_ECHO);
    const tensor = (name: string) => `{ name: "${name}" data_type: TYPE_FP32 dims: [ ${shape} ] }`;
    await Deno.writeTextFile(
      join(version, "..", "config.pbtxt"),
      `backend: "python"\ninput [ ${tensor("IN")} ]\noutput [ ${tensor("OUT")} ]\n`,
    );
  }
}
