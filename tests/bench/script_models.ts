import { join } from "node:path";
import type { Payload } from "./payload.ts";

/** Languages that models are written in. */
export type Language = "python" | "typescript";
export const LANGUAGES: readonly Language[] = ["python", "typescript"];

/** Responses to one request of the decoupled models. */
export const RESPONSES_PER_REQUEST = 1000;
const SHAPE = [16];
const LARGE_SHAPE = [150_528];
const MAX_BATCH_SIZE = 64;

/** What the models of each language do. */
export type ScriptKind = "adder" | "batched" | "identity" | "bls" | "decoupled";
const KINDS: readonly ScriptKind[] = ["adder", "batched", "identity", "bls", "decoupled"];

/** Name of a model. */
export function scriptModel(language: Language, kind: ScriptKind): string {
  return `${language}_${kind}`;
}

/** What is sent to a model. */
export function scriptPayload(language: Language, kind: ScriptKind): Payload {
  const model = scriptModel(language, kind);
  const title = `${language} ${kind}`;
  if (kind === "identity") {
    return { title, model, inputName: "IN", outputName: "OUT", shape: LARGE_SHAPE };
  }
  if (kind === "decoupled") {
    return { title, model, inputName: "IN", outputName: "OUT", shape: [1] };
  }
  const shape = kind === "batched" ? [1, ...SHAPE] : SHAPE;
  return { title, model, inputName: "A", moreInputs: ["B"], outputName: "SUM", shape };
}

const ADD_SUB = `A B -> SUM DIFF`;
const SIGNATURES: Readonly<Record<ScriptKind, readonly [string, readonly number[]]>> = {
  adder: [ADD_SUB, SHAPE],
  batched: [ADD_SUB, SHAPE],
  bls: [ADD_SUB, SHAPE],
  identity: ["IN -> OUT", LARGE_SHAPE],
  decoupled: ["IN -> OUT", [1]],
};

const MORE: Readonly<Partial<Record<ScriptKind, string>>> = {
  batched: `max_batch_size: ${MAX_BATCH_SIZE}\ndynamic_batching { }\n`,
  decoupled: "model_transaction_policy { decoupled: true }\n",
};

const PYTHON_HEAD = `import numpy as np
import triton_python_backend_utils as pb_utils


def value(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


class TritonPythonModel:
    def execute(self, requests):
`;

const PYTHON_ADD_SUB = `        responses = []
        for request in requests:
            a, b = value(request, "A"), value(request, "B")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFF", a - b)]))
        return responses
`;

const PYTHON: Readonly<Record<ScriptKind, string>> = {
  adder: PYTHON_ADD_SUB,
  batched: PYTHON_ADD_SUB,
  identity: `        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value(request, "IN"))]) for request in requests
        ]
`,
  bls: `        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="${scriptModel("python", "adder")}",
                requested_output_names=["SUM", "DIFF"],
                inputs=[pb_utils.get_input_tensor_by_name(request, name) for name in ("A", "B")],
            )
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses
`,
  decoupled: `        for request in requests:
            sender = request.get_response_sender()
            tensor = value(request, "IN")
            for _ in range(${RESPONSES_PER_REQUEST}):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
`,
};

const TYPESCRIPT_ADD_SUB = `  execute(requests) {
    return requests.map((request) => {
      const { shape, data: a } = request.input("A", "FP32");
      const { data: b } = request.input("B", "FP32");
      const [sum, difference] = [new Float32Array(a.length), new Float32Array(a.length)];
      for (let index = 0; index < a.length; index++) {
        sum[index] = a[index] + b[index];
        difference[index] = a[index] - b[index];
      }
      return { outputs: { SUM: { shape, data: sum }, DIFF: { shape, data: difference } } };
    });
  }
`;

const TYPESCRIPT: Readonly<Record<ScriptKind, string>> = {
  adder: TYPESCRIPT_ADD_SUB,
  batched: TYPESCRIPT_ADD_SUB,
  identity: `  execute(requests) {
    return requests.map(({ inputs }) => ({ outputs: { OUT: inputs.IN } }));
  }
`,
  bls: `  execute(requests) {
    return Promise.all(requests.map(async (request) => {
      const { outputs } = await request.infer("${
    scriptModel("typescript", "adder")
  }", { inputs: request.inputs });
      return { outputs };
    }));
  }
`,
  decoupled: `  *stream({ inputs }) {
    for (let count = 0; count < ${RESPONSES_PER_REQUEST}; count++) yield { outputs: { OUT: inputs.IN } };
  }
`,
};

/** Writes the models of one language. */
export async function writeScriptModels(repository: string, language: Language): Promise<void> {
  for (const kind of KINDS) {
    const version = join(repository, scriptModel(language, kind), "1");
    await Deno.mkdir(version, { recursive: true });
    await Deno.writeTextFile(join(version, "..", "config.pbtxt"), configOf(language, kind));
    const [file, text] = language === "python"
      ? ["model.py", PYTHON_HEAD + PYTHON[kind]]
      : ["model.ts", `export default class Model {\n${TYPESCRIPT[kind]}}\n`];
    await Deno.writeTextFile(join(version, file), text);
  }
}

function configOf(language: Language, kind: ScriptKind): string {
  const [signature, shape] = SIGNATURES[kind];
  const [inputs, outputs] = signature.split(" -> ").map((names) => names.split(" "));
  const section = (name: string, tensors: readonly string[]) =>
    tensors.map((tensor) =>
      `${name} { name: "${tensor}" data_type: TYPE_FP32 dims: [ ${shape} ] }\n`
    ).join("");
  return `backend: "${language}"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n` +
    (MORE[kind] ?? "") + section("input", inputs!) + section("output", outputs!);
}
