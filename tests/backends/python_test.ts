import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { ensurePython } from "../python.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { type ConfigInit, openInstance, outputsOf, tensor } from "./fixture.ts";

const HEAD = `
import numpy as np
import triton_python_backend_utils as pb_utils

`;

const IDENTITY = `${HEAD}
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            if array.size > 0 and np.isnan(array.ravel()[0]):
                error = pb_utils.TritonError("not a number")
                answers.append(pb_utils.InferenceResponse(error=error))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)]))
        return answers
`;

const FAILS_EVERY_THIRD = `${HEAD}
class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy() for r in requests]
        answers = [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", a)]) for a in arrays]
        answers[2::3] = [
            pb_utils.InferenceResponse(error=pb_utils.TritonError("failed")) for _ in answers[2::3]
        ]
        return answers
`;

const CONFIG: ConfigInit = {
  maxBatchSize: 8,
  input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
  output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
};

/** Opens a model with the interpreter of the tests. */
async function open(config: ConfigInit, { code = IDENTITY, instanceCount = 1 } = {}) {
  const files = { "model.py": new TextEncoder().encode(code) };
  const settings = { "python-executable": await ensurePython(() => {}) };
  return await openInstance("python", { config, files, instanceCount, settings });
}

runBackendSuite({
  name: "python",
  open: (config, instanceCount = 1) => open(config, { instanceCount }),
  async failing() {
    const opened = await open(CONFIG, { code: FAILS_EVERY_THIRD });
    return { ...opened, failing: 2, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});

Deno.test("python: a batch in which one request fails answers the others", async () => {
  await using opened = await open(CONFIG);
  const good = tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4]);
  const bad = tensor("INPUT0", "FP32", [1, 4], [NaN, 0, 0, 0]);
  const requests = [good, bad, good].map((input) => opened.request([input]));
  const { outcomes } = await opened.instance.execute(requests);
  assert.equal(outputsOf(outcomes[0]).length, 1);
  assert.throws(() => outputsOf(outcomes[1]), { code: "INTERNAL", message: "not a number" });
  assert.equal(outputsOf(outcomes[2]).length, 1);
});

Deno.test("python: outputs are views of the process's memory, given back by release()", async () => {
  await using opened = await open({
    input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [-1n] }],
    output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [-1n] }],
  });
  const input = tensor("INPUT0", "FP32", [100_000]);
  const places = new Set<number>();
  for (let run = 0; run < 20; run++) {
    const { outcomes } = await opened.instance.execute([opened.request([input])]);
    const [output] = outputsOf(outcomes[0]);
    assert.equal(output!.data.length, 400_000);
    places.add(output!.data.byteOffset);
    (outcomes[0] as { release?: () => void }).release!();
  }
  // Slots come round again.
  assert.ok(places.size <= 8, `${places.size} places`);
});

Deno.test("python: a name that a shell would take apart is refused", async () => {
  await using opened = await open(CONFIG);
  for (const name of ["a;b", "a$b", "a b`c`", "a'b"]) {
    await assert.rejects(
      opened.model.createInstance({ name, kind: "KIND_CPU", deviceId: 0 }),
      { code: "INVALID_ARG", message: /Invalid stub name: contains invalid characters/ },
    );
  }
});

const LOAD_ERRORS: readonly [string, ConfigInit & { code?: string }, RegExp][] = [
  ["a file that is not there", { defaultModelFilename: "other.py" }, /not found in '.*other\.py'/],
  ["a file of another kind", { defaultModelFilename: "model.txt" }, /must end with '\.py'/],
  [
    "FORCE_CPU_ONLY_INPUT_TENSORS=maybe",
    { parameters: { FORCE_CPU_ONLY_INPUT_TENSORS: { stringValue: "maybe" } } },
    /Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: maybe/,
  ],
  ["a syntax error", { code: "class TritonPythonModel\n" }, /SyntaxError/],
  ["no class", { code: "x = 1\n" }, /has no attribute 'TritonPythonModel'/],
];

for (const [what, { code = IDENTITY, ...config }, message] of LOAD_ERRORS) {
  Deno.test(`python: ${what} is told`, async () => {
    await assert.rejects(open({ ...CONFIG, ...config }, { code }), { message });
  });
}
