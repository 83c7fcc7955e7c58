import assert from "node:assert/strict";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { DataType, type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { TRT_TYPE } from "../../ffi/tensorrt/signature.ts";
import { checkConfig } from "./config_check.ts";
import { engineSignature, engineTensor, rowsEngine, rowsProfile } from "./engine_fixture.ts";

type Init = Exclude<MessageInitShape<typeof ModelConfigSchema>, ModelConfig>;

const FP32 = DataType.TYPE_FP32;
const input = { name: "INPUT", dataType: FP32, dims: [16n] };
const output = { name: "OUTPUT", dataType: FP32, dims: [16n] };
const GOOD: Init = { name: "m", maxBatchSize: 8, input: [input], output: [output] };

function check(init: Init, engine = rowsEngine()): void {
  checkConfig(create(ModelConfigSchema, { ...GOOD, ...init }), engine, "m");
}

Deno.test("checkConfig() takes what agrees with the engine", () => {
  check({});
  check({ maxBatchSize: 2, output: [] });
  const full = [-1n, 16n];
  check({
    maxBatchSize: 0,
    input: [{ ...input, dims: full }],
    output: [{ ...output, dims: full }],
  });
  check({ input: [{ ...input, dims: [4n, 4n], reshape: { shape: [16n] } }] });
});

const REFUSALS: readonly [string, Init, RegExp][] = [
  [
    "too large batches",
    { maxBatchSize: 9 },
    /unexpected configuration maximum batch size 9 for 'm', model maximum is 8/,
  ],
  [
    "an unknown input",
    { input: [input, { ...input, name: "X" }] },
    /unexpected inference input 'X', allowed inputs are: INPUT/,
  ],
  [
    "an unknown output",
    { output: [{ ...output, name: "X" }] },
    /unexpected inference output 'X', allowed outputs are: OUTPUT/,
  ],
  [
    "another type",
    { input: [{ ...input, dataType: DataType.TYPE_FP16 }] },
    /unexpected datatype TYPE_FP16 for inference input 'INPUT', expecting TYPE_FP32 for m/,
  ],
  [
    "other dims",
    { output: [{ ...output, dims: [7n] }] },
    /tensor 'OUTPUT': the model expects 2 dimensions \(shape \[-1,16\]\).*making complete shape \[-1,7\]/,
  ],
  [
    "a shape tensor that is none",
    { input: [{ ...input, isShapeTensor: true }] },
    /'INPUT' is incorrectly specified as a shape tensor\./,
  ],
  [
    "a format that is none",
    { output: [{ ...output, isNonLinearFormatIo: true }] },
    /'OUTPUT' uses a linear IO format, but 'is_non_linear_format_io' is incorrectly set to true/,
  ],
  [
    "a missing input",
    { input: [] },
    /failed to specify the dimensions of all input tensors.*has no 'INPUT'/,
  ],
];
for (const [what, init, message] of REFUSALS) {
  Deno.test(`checkConfig() refuses ${what}`, () => {
    assert.throws(() => check(init), { code: "INVALID_ARG", message });
  });
}

Deno.test("checkConfig() refuses fixed sizes that fit no profile", () => {
  const engine = engineSignature([
    engineTensor({
      name: "INPUT",
      dims: [-1, -1],
      profiles: [{ min: [1, 4], opt: [4, 16], max: [8, 32] }],
    }),
    engineTensor({ name: "OUTPUT", isInput: false }),
  ]);
  for (const size of [3n, 33n]) {
    assert.throws(
      () => check({ input: [{ ...input, dims: [size] }] }, engine),
      new RegExp(
        "model configuration specified invalid shape for input 'INPUT' for model m. Error " +
          `details: model expected the shape of dimension 1 to be between 4 and 32 but received ${size}`,
      ),
    );
  }
  check({ input: [{ ...input, dims: [-1n] }] }, engine);
});

Deno.test("checkConfig() compares the number of values of shape tensors, and tells all faults", () => {
  const engine = engineSignature([
    engineTensor({ name: "INPUT", profiles: [rowsProfile(1, 8)] }),
    engineTensor({ name: "S", type: TRT_TYPE.INT32, dims: [3], isShapeTensor: true }),
    engineTensor({ name: "OUTPUT", isInput: false, dims: [-1, 16] }),
  ]);
  const sizes = { name: "S", dataType: DataType.TYPE_INT32, dims: [2n], isShapeTensor: true };
  check({ input: [input, sizes] }, engine);
  assert.throws(
    () => check({ input: [{ ...input, dims: [9n] }, { ...sizes, dims: [3n] }] }, engine),
    (error: Error) =>
      /'INPUT'/.test(error.message) && /'S': the model has 3 values/.test(error.message),
  );
});
