import assert from "node:assert/strict";
import { encodeBytesTensor } from "../../proto/bytes_tensor.ts";
import { parseModelConfig } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import { createStateRules } from "./scheduler/sequence_state.ts";
import { createTensorRules } from "./tensor_rules.ts";
import { readWarmupSamples, type WarmupSample } from "./warmup_sample.ts";

const X =
  `input { name: "X" data_type: TYPE_FP32 dims: 2 } output { name: "Y" data_type: TYPE_FP32 dims: 2 } `;
const BATCHING = "max_batch_size: 4 ";

interface File {
  readonly name: string;
  readonly bytes: Uint8Array;
}

async function read(text: string, ...files: File[]): Promise<readonly WarmupSample[]> {
  const modelDirectory = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${modelDirectory}/warmup`);
    for (const { name, bytes } of files) {
      await Deno.writeFile(`${modelDirectory}/warmup/${name}`, bytes);
    }
    const { config, positions } = parseModelConfig(`name: "m" ${text}`, "m/config.pbtxt");
    return await readWarmupSamples({
      config,
      positions,
      modelDirectory,
      rules: createTensorRules(config),
      stateRules: await createStateRules(config, modelDirectory),
    });
  } finally {
    await Deno.remove(modelDirectory, { recursive: true });
  }
}

function input(name: string, type: string, dims: string, data: string): string {
  return `inputs { key: "${name}" value { data_type: TYPE_${type} dims: [ ${dims} ] ${data} } } `;
}

function sample(inputs: string, more = "batch_size: 1"): string {
  return `model_warmup { name: "s" ${more} ${inputs} } `;
}

async function faultOf(text: string, ...files: File[]): Promise<string> {
  try {
    await read(text, ...files);
  } catch (reason) {
    assert.ok(reason instanceof ServerError);
    return reason.message;
  }
  return "";
}

const ZERO = input("X", "FP32", "2", "zero_data: true");

Deno.test("readWarmupSamples() makes zeros with a batch dimension", async () => {
  const [first, ...others] = await read(BATCHING + X + sample(ZERO, "batch_size: 3 count: 2"));
  assert.deepEqual(others, []);
  assert.deepEqual(first, {
    name: "s",
    batchSize: 3,
    count: 2,
    inputs: [{ name: "X", datatype: "FP32", shape: [1, 2], data: new Uint8Array(8) }],
    outputs: ["Y"],
  });
});

Deno.test("readWarmupSamples() adds no dimension for models that do not batch", async () => {
  const [first] = await read(X + sample(ZERO));
  assert.deepEqual(first!.inputs[0]!.shape, [2]);
  assert.equal(first!.count, 1);
});

Deno.test("readWarmupSamples() leaves out samples without batch size, whatever is wrong with them", async () => {
  const wrong = sample(input("X", "INT8", "-1", ""), "");
  assert.deepEqual((await read(BATCHING + X + wrong + sample(ZERO))).length, 1);
});

Deno.test("readWarmupSamples() makes random bytes, booleans of 0 and 1, and empty strings", async () => {
  const text = `input { name: "A" data_type: TYPE_INT8 dims: 70000 }
    input { name: "B" data_type: TYPE_BOOL dims: 100 }
    input { name: "C" data_type: TYPE_STRING dims: 3 }`;
  const [first] = await read(
    text + sample(
      input("A", "INT8", "70000", "random_data: true") +
        input("B", "BOOL", "100", "random_data: true") +
        input("C", "STRING", "3", "random_data: true"),
    ),
  );
  const [a, b, c] = first!.inputs.map(({ data }) => data);
  assert.equal(a!.byteLength, 70_000);
  assert.ok(new Set(a).size > 200);
  assert.ok(a!.subarray(65_536).some((byte) => byte !== 0));
  assert.deepEqual([...new Set(b)].sort(), [0, 1]);
  assert.deepEqual([...c!], Array.from({ length: 12 }, () => 0));
});

Deno.test("readWarmupSamples() takes the first bytes of a file, and all of a file of strings", async () => {
  const floats = new Uint8Array(Float32Array.of(1.5, 2.5, 9).buffer);
  const strings = encodeBytesTensor(["hello", ""]);
  const text = `${X} input { name: "S" data_type: TYPE_STRING dims: 2 } `;
  const [first] = await read(
    text + sample(
      input("X", "FP32", "2", `input_data_file: "x"`) +
        input("S", "STRING", "2", `input_data_file: "/s"`),
    ),
    { name: "x", bytes: floats },
    { name: "s", bytes: strings },
  );
  assert.deepEqual([...first!.inputs[0]!.data], [...floats.subarray(0, 8)]);
  assert.deepEqual([...first!.inputs[1]!.data], [...strings]);
});

Deno.test("readWarmupSamples() orders inputs like the configuration and shows reshapes to the model", async () => {
  const text = `input { name: "A" data_type: TYPE_INT8 dims: 4 reshape { shape: [ 2, 2 ] } }
    input { name: "B" data_type: TYPE_INT8 dims: 1 optional: true }
    input { name: "C" data_type: TYPE_INT8 dims: 1 }`;
  const one = (name: string) => input(name, "INT8", "1", "zero_data: true");
  const [first] = await read(
    text + sample(one("C") + input("A", "INT8", "4", "zero_data: true")),
  );
  assert.deepEqual(first!.inputs.map(({ name, shape }) => [name, shape]), [
    ["A", [2, 2]],
    ["C", [1]],
  ]);
});

Deno.test("readWarmupSamples() passes on controls and fills in states", async () => {
  const states = `sequence_batching {
    control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
    state { input_name: "a" output_name: "A" data_type: TYPE_INT32 dims: 1 }
    state { input_name: "b" output_name: "B" data_type: TYPE_INT32 dims: -1 } } `;
  const [first] = await read(
    BATCHING + X + states + sample(
      input("START", "INT32", "1", "zero_data: true") +
        input("b", "INT32", "3", "random_data: true") + ZERO,
    ),
  );
  assert.deepEqual(first!.inputs.map(({ name, shape }) => [name, shape]), [
    ["X", [1, 2]],
    ["START", [1, 1]],
    ["b", [1, 3]],
    ["a", [1, 1]],
  ]);
  assert.deepEqual(first!.outputs, ["Y", "A", "B"]);
});

const FAULTS: readonly (readonly [what: string, inputs: string, message: string])[] = [
  [
    "free dimension",
    input("X", "FP32", "-1", "zero_data: true"),
    "warmup setting expects all variable-size dimensions are specified for input 'X'",
  ],
  [
    "no data",
    input("X", "FP32", "2", ""),
    "[request id: <id_unknown>] warmup setting expects input 'X' to have input_data_type set",
  ],
  [
    "other type",
    input("X", "INT32", "2", "zero_data: true"),
    "[request id: <id_unknown>] inference input 'X' data-type is 'INT32', but model 'm' expects 'FP32'",
  ],
  [
    "no type",
    input("X", "INVALID", "2", "zero_data: true"),
    "[request id: <id_unknown>] inference input 'X' data-type is '<invalid>', but model 'm' expects 'FP32'",
  ],
  [
    "other shape",
    input("X", "FP32", "5", "zero_data: true"),
    "[request id: <id_unknown>] unexpected shape for input 'X' for model 'm'. Expected [-1,2], got [1,5]",
  ],
  [
    "short file",
    input("X", "FP32", "2", `input_data_file: "short"`),
    "[request id: <id_unknown>] warmup setting expects 8 bytes, but the data provided from shortonly has 7 bytes",
  ],
  [
    "no file",
    input("X", "FP32", "2", `input_data_file: "none"`),
    "failed to open text file for read m/warmup/none: No such file or directory",
  ],
  [
    "too many bytes",
    input("X", "FP32", "600000000", "zero_data: true"),
    "warmup data for input 'X' must not be larger than 2147483647 bytes, got 2400000000",
  ],
  [
    "more bytes than there are numbers",
    input("X", "FP32", "9223372036854775807, 9223372036854775807", "zero_data: true"),
    "invalid shape for input 'X'",
  ],
  [
    "missing input",
    "",
    "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['X']",
  ],
  [
    "unknown input",
    input("W", "FP32", "2", "zero_data: true"),
    "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['X']",
  ],
  [
    "control without type",
    ZERO + input("START", "INVALID", "1", "zero_data: true"),
    "[request id: <id_unknown>] warmup setting expects input 'START' to have data_type set",
  ],
  [
    "broken strings of a control",
    ZERO + input("ID", "STRING", "1", `input_data_file: "short"`),
    "[request id: <id_unknown>] incomplete string data for inference input 'ID' for model 'm', expecting",
  ],
];

for (const [what, inputs, message] of FAULTS) {
  Deno.test(`readWarmupSamples() refuses a sample with ${what}, and names it`, async () => {
    const short = { name: "short", bytes: new Uint8Array(7).fill(9) };
    const fault = await faultOf(BATCHING + X + sample(inputs), short);
    assert.ok(fault.startsWith(message), fault);
    assert.ok(fault.includes("warmup sample 's'"), fault);
    assert.ok(fault.includes("model_warmup[0]"), fault);
    assert.equal(fault.split("\n").length, 1, fault);
  });
}

Deno.test("readWarmupSamples() names inputs of a sample that the model does not have", async () => {
  const wrong = input("W", "FP32", "2", "zero_data: true");
  assert.match(await faultOf(BATCHING + X + sample(wrong)), /; the model has no input 'W'$/);
  const control = `sequence_batching { control_input { name: "READY" control ` +
    `{ kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } } } `;
  const ready = input("READY", "INT32", "1", "zero_data: true");
  assert.match(await faultOf(BATCHING + X + control + sample(ready)), /warmup sample 's'$/);
});

Deno.test("readWarmupSamples() refuses batches that are too large and counts without end", async () => {
  assert.match(
    await faultOf(BATCHING + X + sample(ZERO, "batch_size: 9")),
    /^failed to run warmup sample 's': batch size 9 for 'm', max allowed is 4; /,
  );
  for (const more of ["batch_size: 1 count: 4294967295", "batch_size: 4294967295 count: 3"]) {
    assert.match(await faultOf(X + sample(ZERO, more)), /^warmup asks for \d+ executions for 'm'/);
  }
  const empty = sample(input("X", "FP32", "0", "zero_data: true"), "batch_size: 65537");
  assert.match(
    await faultOf(
      `max_batch_size: 2147483647 input { name: "X" data_type: TYPE_FP32 dims: -1 }${empty}`,
    ),
    /^warmup asks for 65537 requests at once for 'm', max allowed is 65536/,
  );
  const large = input("X", "FP32", "300000000", "zero_data: true");
  assert.match(
    await faultOf(
      `${BATCHING} input { name: "X" data_type: TYPE_FP32 dims: -1 }` +
        sample(large, "batch_size: 4"),
    ),
    /^warmup data must not be larger than 2147483647 bytes for one execution, got 4800000000/,
  );
});

Deno.test("readWarmupSamples() lists every fault of every sample", async () => {
  const second = `model_warmup { name: "t" batch_size: 9 ${input("X", "FP32", "2", "")} } `;
  const text = X + `input { name: "Z" data_type: TYPE_INT8 dims: 1 } `;
  const fault = await faultOf(
    BATCHING + text + sample(
      input("X", "FP32", "3", "zero_data: true") + input("Z", "INT8", "-1", "zero_data: true"),
    ) + second,
  );
  const lines = fault.split("\n");
  assert.equal(lines.length, 5, fault);
  assert.ok(lines[0]!.includes("Expected [-1,2], got [1,3]"));
  assert.ok(lines[1]!.includes("variable-size dimensions are specified for input 'Z'"));
  assert.ok(lines[2]!.includes("batch size 9"));
  assert.ok(lines[3]!.includes("input_data_type set"));
  assert.ok(lines[4]!.includes("missing required input(s) ['Z']"));
});
