import assert from "node:assert/strict";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { DataType, type ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { InferInput, InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { createFakeConfig, inferRequest } from "./engine_fixture.ts";
import { checkRequest } from "./request_check.ts";
import { createTensorRules } from "./tensor_rules.ts";

type Config = MessageInitShape<typeof ModelConfigSchema>;

const NOTE = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch " +
  "dimension to be prepended to each input shape. If you want to specify the full shape including " +
  "the batch dim in your input dims config, try setting max_batch_size to zero. See the model " +
  "configuration docs for more info on max_batch_size.";

const { TYPE_FP32, TYPE_INT32, TYPE_STRING } = DataType;
const A = { name: "A", dataType: TYPE_FP32, dims: [2n] };
const B = { name: "B", dataType: TYPE_INT32, dims: [-1n] };
const BATCHING: Config = { maxBatchSize: 8, input: [A] };
const TWO: Config = { maxBatchSize: 8, input: [A, B] };
const OPTIONAL: Config = { maxBatchSize: 0, input: [A, { ...B, optional: true }] };
const FLAT: Config = { maxBatchSize: 0, input: [A] };
const TEXT: Config = {
  maxBatchSize: 0,
  input: [{ name: "S", dataType: TYPE_STRING, dims: [-1n] }],
};

function input(name: string, shape: readonly number[], byteSize?: number): InferInput {
  const elements = shape.reduce((product, dim) => product * Math.max(0, dim), 1);
  const data = new Uint8Array(byteSize ?? (elements > 1e6 ? 0 : elements * 4));
  return { name, datatype: name === "B" ? "INT32" : "FP32", shape, data };
}

function text(bytes: readonly number[], shape: readonly number[]): InferInput {
  return { name: "S", datatype: "BYTES", shape, data: new Uint8Array(bytes) };
}

function check(config: Config, inputs: readonly InferInput[], change: Partial<InferRequest> = {}) {
  const rules = createTensorRules(createFakeConfig("m", config));
  return checkRequest(inferRequest("m", { ...change, inputs }), rules);
}

const REFUSALS: readonly {
  readonly name: string;
  readonly config: Config;
  readonly inputs: readonly InferInput[];
  readonly change?: Partial<InferRequest>;
  /** After the prefix with the request id; a text that has no prefix begins with `!`. */
  readonly message: string;
}[] = [
  {
    name: "an output nobody has, before anything else",
    config: BATCHING,
    inputs: [],
    change: { outputs: [{ name: "O", classificationCount: 0 }] },
    message: "!unexpected inference output 'O' for model 'm'",
  },
  {
    name: "the same input twice",
    config: TWO,
    inputs: [input("A", [1, 2]), input("A", [1, 2])],
    message: "input 'A' already exists in request",
  },
  {
    name: "no inputs",
    config: TWO,
    inputs: [],
    message: "expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing " +
      "required input(s) ['A','B']. Please provide all required input(s).",
  },
  {
    name: "too few inputs",
    config: TWO,
    inputs: [input("B", [1, 3])],
    message: "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['B'], but missing " +
      "required input(s) ['A']. Please provide all required input(s).",
  },
  {
    name: "too many inputs",
    config: BATCHING,
    inputs: [input("A", [1, 2]), input("B", [1, 2])],
    message: "expected 1 inputs but got 2 inputs for model 'm'. Got input(s) ['A','B'], but " +
      "missing required input(s) []. Please provide all required input(s).",
  },
  {
    name: "too few inputs of a model with optional ones",
    config: OPTIONAL,
    inputs: [],
    message: "expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got " +
      "input(s) [], but missing required input(s) ['A']. Please provide all required input(s).",
  },
  {
    name: "an optional input in place of the required one",
    config: OPTIONAL,
    inputs: [input("B", [3])],
    message: "expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got " +
      "input(s) ['B'], but missing required input(s) ['A']. Please provide all required input(s).",
  },
  {
    name: "an unknown input",
    config: TWO,
    inputs: [input("A", [1, 2]), input("X", [1, 2])],
    message: "!unexpected inference input 'X' for model 'm'",
  },
  {
    name: "no shape where there is a batch dimension",
    config: BATCHING,
    inputs: [input("A", [])],
    message: "input 'A' has no shape but model requires batch dimension for 'm'",
  },
  {
    name: "different batch sizes",
    config: TWO,
    inputs: [input("A", [2, 2]), input("B", [1, 2])],
    message: "input 'B' batch size does not match other inputs for 'm'",
  },
  {
    name: "D1: too many rows",
    config: BATCHING,
    inputs: [input("A", [9, 2])],
    message: "inference request batch-size must be <= 8 for 'm'",
  },
  {
    name: "D1: a long vector without the batch dimension",
    config: { maxBatchSize: 8, input: [{ ...A, dims: [238n] }] },
    inputs: [input("A", [238])],
    message: "inference request batch-size must be <= 8 for 'm': unexpected shape for input 'A' " +
      `for model 'm'. Expected [-1,238], got [238]. ${NOTE}`,
  },
  {
    name: "another datatype",
    config: BATCHING,
    inputs: [{ ...input("A", [1, 2]), datatype: "INT32" }],
    message: "inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'",
  },
  {
    name: "D10: a dimension of -1",
    config: BATCHING,
    inputs: [input("A", [1, -1])],
    message: "All input dimensions should be specified for input 'A' for model 'm', got [1,-1]",
  },
  {
    name: "a negative dimension",
    config: FLAT,
    inputs: [input("A", [-5])],
    message: "invalid shape for input 'A': shape [-5] contains one or more invalid dimensions",
  },
  {
    name: "a dimension that is no integer",
    config: FLAT,
    inputs: [input("A", [1.5])],
    message: "invalid shape for input 'A': shape [1.5] contains one or more invalid dimensions",
  },
  {
    name: "an overflowing shape",
    config: { maxBatchSize: 0, input: [{ ...A, dims: [-1n, -1n] }] },
    inputs: [input("A", [2 ** 40, 2 ** 40], 0)],
    message: `invalid shape for input 'A': shape [${2 ** 40},${2 ** 40}] causes total element ` +
      `count to exceed maximum size of 9223372036854775807`,
  },
  {
    name: "D1: a shape without the batch dimension",
    config: { maxBatchSize: 8, input: [{ ...A, dims: [238n] }] },
    inputs: [{ ...input("A", [8]), data: new Uint8Array(8 * 4) }],
    message: `unexpected shape for input 'A' for model 'm'. Expected [-1,238], got [8]. ${NOTE}`,
  },
  {
    name: "another shape without batching",
    config: FLAT,
    inputs: [input("A", [3])],
    message: "unexpected shape for input 'A' for model 'm'. Expected [2], got [3]. ",
  },
  {
    name: "too few bytes",
    config: BATCHING,
    inputs: [input("A", [2, 2], 12)],
    message: "input byte size mismatch for input 'A' for model 'm'. Expected 16, got 12",
  },
  {
    name: "a batch of no rows",
    config: BATCHING,
    inputs: [input("A", [0, 2])],
    message: "input byte size mismatch for input 'A' for model 'm'. Expected 8, got 0",
  },
  {
    name: "a batch of no rows of no elements",
    config: { maxBatchSize: 8, input: [{ ...A, dims: [-1n] }] },
    inputs: [input("A", [0, 0])],
    message: "inference request batch-size must be >= 1 for 'm'",
  },
  {
    name: "a cut length of a text",
    config: TEXT,
    inputs: [text([1, 0, 0, 0, 65, 1, 0], [2])],
    message:
      "incomplete string length indicator for inference input 'S' for model 'm', expecting " +
      "4 bytes but only 2 bytes available. Please make sure the string length indicator is in one " +
      "buffer.",
  },
  {
    name: "a cut text",
    config: TEXT,
    inputs: [text([255, 0, 0, 0, 65, 66, 67], [1])],
    message: "incomplete string data for inference input 'S' for model 'm', expecting string of " +
      "length 255 but only 3 bytes available",
  },
  {
    name: "a text length beyond 2 GB",
    config: TEXT,
    inputs: [text([255, 255, 255, 255, 65], [1])],
    message: "incomplete string data for inference input 'S' for model 'm', expecting string of " +
      "length 4294967295 but only 1 bytes available",
  },
  {
    name: "too many texts",
    config: TEXT,
    inputs: [text([1, 0, 0, 0, 65, 0, 0, 0, 0], [1])],
    message: "unexpected number of string elements 2 for inference input 'S' for model 'm', " +
      "expecting 1",
  },
  {
    name: "too few texts",
    config: TEXT,
    inputs: [text([1, 0, 0, 0, 65], [2])],
    message: "expected 2 string elements for inference input 'S' for model 'm', got 1",
  },
];

for (const { name, config, inputs, change, message } of REFUSALS) {
  Deno.test(`checkRequest() refuses ${name}`, () => {
    const hasPrefix = !message.startsWith("!");
    for (const [id, shown] of [["", "<id_unknown>"], ["r1", "r1"]] as const) {
      assert.throws(() => check(config, inputs, { ...change, id }), (error) => {
        assert.ok(error instanceof ServerError);
        assert.equal(error.code, "INVALID_ARG");
        assert.equal(
          error.message,
          hasPrefix ? `[request id: ${shown}] ${message}` : message.slice(1),
        );
        return true;
      });
    }
  });
}

Deno.test("checkRequest() passes inputs on as they are", () => {
  const inputs = [input("A", [3, 2]), input("B", [3, 5])];
  const checked = check(TWO, inputs);
  assert.equal(checked.inputs, inputs);
  assert.equal(checked.batchSize, 3);
  assert.deepEqual(checked.outputs, ["OUT"]);
});

Deno.test("checkRequest() puts inputs into the order of the configuration", () => {
  const checked = check(TWO, [input("B", [1, 5]), input("A", [1, 2])]);
  assert.deepEqual(checked.inputs.map(({ name }) => name), ["A", "B"]);
});

Deno.test("checkRequest() takes an optional input or leaves it out", () => {
  assert.equal(check(OPTIONAL, [input("A", [2])]).inputs.length, 1);
  assert.equal(check(OPTIONAL, [input("B", [3]), input("A", [2])]).inputs.length, 2);
});

Deno.test("checkRequest() counts a row for a model that does not batch", () => {
  assert.equal(check(FLAT, [input("A", [2])]).batchSize, 1);
});

Deno.test("D12: checkRequest() accepts tensors without elements", () => {
  const free = { ...A, dims: [-1n] };
  assert.deepEqual(check({ maxBatchSize: 0, input: [free] }, [input("A", [0])]).batchSize, 1);
  assert.deepEqual(check({ maxBatchSize: 8, input: [free] }, [input("A", [2, 0])]).batchSize, 2);
  assert.equal(check(TEXT, [text([], [0])]).inputs.length, 1);
});

Deno.test("checkRequest() accepts a 0-d tensor where the configuration can only say [1]", () => {
  const scalar: Config = { maxBatchSize: 0, input: [{ ...A, dims: [1n] }] };
  assert.deepEqual(check(scalar, [input("A", [])]).inputs[0]!.shape, [1]);
  assert.deepEqual(check(scalar, [input("A", [1])]).inputs[0]!.shape, [1]);
});

Deno.test("checkRequest() gives inputs the shape that the model sees", () => {
  const reshaped = (dims: bigint[], shape: bigint[], maxBatchSize: number): Config => ({
    maxBatchSize,
    input: [{ ...A, dims, reshape: { shape } }],
  });
  const cases = [
    [reshaped([1n], [], 8), [4, 1], [4]],
    [reshaped([4n], [2n, 2n], 8), [3, 4], [3, 2, 2]],
    [reshaped([-1n, 4n, -1n], [-1n, 2n, 2n, -1n], 0), [5, 4, 7], [5, 2, 2, 7]],
  ] as const;
  for (const [config, shape, seen] of cases) {
    const { inputs } = check(config, [input("A", shape)]);
    assert.deepEqual(inputs[0]!.shape, seen);
    assert.equal(inputs[0]!.data.byteLength, 4 * seen.reduce((a, b) => a * b, 1));
  }
});

Deno.test("D2: checkRequest() counts the texts of a reshaped input", () => {
  const config: Config = {
    maxBatchSize: 32,
    input: [{ name: "S", dataType: TYPE_STRING, dims: [1n], reshape: { shape: [] } }],
  };
  const four = [1, 2, 3, 4].flatMap((char) => [1, 0, 0, 0, 64 + char]);
  const { inputs, batchSize } = check(config, [text(four, [4, 1])]);
  assert.deepEqual(inputs[0]!.shape, [4]);
  assert.equal(batchSize, 4);
});

Deno.test("checkRequest() takes requested outputs once each", () => {
  const outputs = ["OUT", "OUT"].map((name) => ({ name, classificationCount: 0 }));
  assert.deepEqual(check(FLAT, [input("A", [2])], { outputs }).outputs, ["OUT"]);
});

Deno.test("checkRequest() takes shape tensors without batch dimension, the batch size as their first value", () => {
  const sizes = { name: "B", dataType: TYPE_INT32, dims: [2n], isShapeTensor: true };
  const config: Config = { maxBatchSize: 8, input: [A, sizes] };
  const { batchSize, inputs } = check(config, [input("A", [5, 2]), input("B", [3])]);
  assert.equal(batchSize, 5);
  assert.deepEqual(inputs.map(({ shape }) => shape), [[5, 2], [3]]);
  assert.throws(() => check(config, [input("A", [5, 2]), input("B", [2])]), /unexpected shape/);
  assert.throws(() => check(config, [input("A", [5, 2]), input("B", [5, 3])]), /unexpected shape/);
  const flat: Config = { ...config, maxBatchSize: 0 };
  assert.equal(check(flat, [input("A", [2]), input("B", [2])]).batchSize, 1);
});

Deno.test("checkRequest() leaves the size of tensors in formats of their own to the backend", () => {
  const packed = { name: "A", dataType: TYPE_FP32, dims: [3n, 2n, 2n], isNonLinearFormatIo: true };
  const { inputs } = check({ maxBatchSize: 0, input: [packed] }, [input("A", [3, 2, 2], 64)]);
  assert.equal(inputs[0]?.data.byteLength, 64);
});
