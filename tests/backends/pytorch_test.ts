import assert from "node:assert/strict";
import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import {
  BatchInput_Kind,
  DataType,
  ModelInstanceGroup_Kind,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import { buildShim, locateTorch } from "../../ffi/pytorch/mod.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { bytesData, type ConfigInit, floats, outputsOf, tensor } from "./fixture.ts";
import { ADD, CACHE, library, open, row } from "./pytorch_fixture.ts";

const ignore = "reason" in library;

const IDENTITY = `
def forward(self: __torch__.M, INPUT0: Tensor) -> Tensor:
  return INPUT0
`;
/** Fails for indices beyond the table, which are values of a request. */
const TABLE = `
def forward(self: __torch__.M, INPUT0: Tensor) -> Tensor:
  return torch.embedding(torch.ones([4, 2]), INPUT0)
`;
const { TYPE_FP32, TYPE_INT64, TYPE_STRING, TYPE_BOOL } = DataType;

if ("reason" in library) {
  Deno.test({ name: `pytorch: skipped, ${library.reason}`, ignore: true, fn() {} });
} else {
  const { path } = library;
  Deno.test("pytorch: the shim is built against the real library, once for all tests", async () => {
    assert.ok((await Deno.stat(await buildShim(locateTorch(path), CACHE))).isFile);
  });
  runBackendSuite({
    name: "pytorch",
    open: (config, instanceCount = 1) => open(IDENTITY, { config, instanceCount }),
    failing: async () => {
      const config = {
        maxBatchSize: 8,
        input: [row("INPUT0", TYPE_INT64, [2n])],
        output: [row("OUTPUT0", TYPE_FP32, [2n, 2n])],
      };
      return Object.assign(await open(TABLE, { config }), { failing: 1 });
    },
  });
}

function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `pytorch: ${name}`, ignore, fn });
}

const DATATYPES_SERVED = [
  ...["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64"],
  ...["FP16", "FP32", "FP64", "BF16"],
] as Datatype[];

test("tensors of every datatype of PyTorch pass, one by one and batched", async () => {
  const names = DATATYPES_SERVED.map((_, k) => `x${k}`);
  const listed = names.map((name) => `${name}: Tensor`).join(", ");
  const types = names.map(() => "Tensor").join(", ");
  const model = `
def forward(self: __torch__.M, ${listed}) -> Tuple[${types}]:
  return (${names.join(", ")})
`;
  const typed = (name: (k: number) => string) =>
    DATATYPES_SERVED.map((each, k) => row(name(k), DataType[`TYPE_${each}` as "TYPE_BOOL"], [3n]));
  const config = {
    maxBatchSize: 4,
    input: typed((k) => `x${k}`),
    output: typed((k) => `OUTPUT__${k}`),
  };
  await using opened = await open(model, { config });
  const inputsFrom = (start: number) =>
    DATATYPES_SERVED.map((datatype, k) => {
      const length = 3 * DATATYPES[datatype].byteSize;
      const value = (i: number) => datatype === "BOOL" ? i & 1 : (start + i) % 60;
      return tensor(`x${k}`, datatype, [1, 3], Uint8Array.from({ length }, (_, i) => value(i)));
    });
  const requests = [inputsFrom(1), inputsFrom(30)].map((inputs) => opened.request(inputs));
  for (const batch of [requests.slice(0, 1), requests]) {
    const { outcomes } = await opened.instance.execute(batch);
    outcomes.forEach((outcome, index) => {
      outputsOf(outcome).forEach((output, k) => {
        assert.equal(output.datatype, DATATYPES_SERVED[k]);
        assert.deepEqual([...output.shape], [1, 3]);
        assert.deepEqual([...output.data], [...batch[index]!.inputs[k]!.data], output.datatype);
      });
    });
  }
});

test("inputs are found by argument, by index, and else in the order of the configuration", async () => {
  const pairs = [["y", "x"], ["INPUT__1", "INPUT__0"], ["second", "first"], ["y", "any__0"]];
  for (const [index, [first, second]] of pairs.entries()) {
    const config = {
      maxBatchSize: 8,
      input: [row(first!), row(second!)],
      output: [row("OUTPUT__1")],
    };
    await using opened = await open(ADD, { config });
    const { outcomes } = await opened.instance.execute([
      opened.request([
        tensor(first!, "FP32", [1, 4], [1, 1, 1, 1]),
        tensor(second!, "FP32", [1, 4], [5, 6, 7, 8]),
      ]),
    ]);
    const expected = index < 2 ? [4, 5, 6, 7] : [-4, -5, -6, -7];
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), expected, `${first}, ${second}`);
  }
});

test("an argument with a default may be left out, by the configuration or by a request", async () => {
  const model = `
def forward(self: __torch__.M, x: Tensor, y: Optional[Tensor]=None, factor: int=3) -> Tensor:
  if torch.__isnot__(y, None):
    z = torch.add(x, unchecked_cast(Tensor, y))
  else:
    z = torch.mul(x, factor)
  return z
`;
  const output = [row("out")];
  const both = { maxBatchSize: 8, input: [row("x"), { ...row("y"), optional: true }], output };
  const x = tensor("x", "FP32", [1, 4], [1, 2, 3, 4]);
  for (const config of [{ ...both, input: [row("x")] }, both]) {
    await using opened = await open(model, { config });
    const { outcomes } = await opened.instance.execute([opened.request([x])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [3, 6, 9, 12]);
  }
  await using opened = await open(model, { config: both });
  const given = opened.request([x, { ...x, name: "y" }]);
  const { outcomes } = await opened.instance.execute([given]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 4, 6, 8]);
});

test("controls, states and generated inputs go in where their names say", async () => {
  const model = `
def forward(self: __torch__.M, x: Tensor, count: Tensor, start: Tensor, state: Tensor) -> Tuple[Tensor, Tensor]:
  sum = torch.add(torch.mul(state, torch.sub(1, start)), x)
  return (torch.add(sum, torch.sum(count)), sum)
`;
  const config: ConfigInit = {
    maxBatchSize: 4,
    input: [row("INPUT__0", TYPE_FP32, [1n])],
    output: [row("OUTPUT__0", TYPE_FP32, [1n])],
    batchInput: [{
      kind: BatchInput_Kind.BATCH_ELEMENT_COUNT,
      targetName: ["COUNT__1"],
      dataType: TYPE_FP32,
      sourceInput: ["INPUT__0"],
    }],
    schedulingChoice: {
      case: "sequenceBatching",
      value: {
        controlInput: [{
          name: "START__2",
          control: [{ kind: ControlKind.CONTROL_SEQUENCE_START, fp32FalseTrue: [0, 1] }],
        }],
        state: [{
          inputName: "STATE__3",
          outputName: "STATE_OUT__1",
          dataType: TYPE_FP32,
          dims: [1n],
        }],
      },
    },
  };
  await using opened = await open(model, { config });
  const request = opened.request([
    tensor("INPUT__0", "FP32", [1, 1], [5]),
    tensor("START__2", "FP32", [1, 1], [0]),
    tensor("STATE__3", "FP32", [1, 1], [20]),
  ], { outputs: ["OUTPUT__0", "STATE_OUT__1"] });
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(outputsOf(outcomes[0]).map((each) => floats(each)), [[26], [25]]);
});

test("strings go in as List[str] and come out of it", async () => {
  const model = `
def forward(self: __torch__.M, texts: List[str]) -> List[str]:
  return texts
`;
  const config = {
    input: [row("texts", TYPE_STRING, [-1n])],
    output: [row("OUTPUT__0", TYPE_STRING, [-1n])],
  };
  await using opened = await open(model, { config });
  for (const texts of [["a", "", "schön"], []]) {
    const data = bytesData(texts);
    const request = opened.request([{
      name: "texts",
      datatype: "BYTES",
      shape: [texts.length],
      data,
    }]);
    const { outcomes } = await opened.instance.execute([request]);
    const [output] = outputsOf(outcomes[0]);
    assert.deepEqual([...output!.data], [...data]);
    assert.deepEqual([...output!.shape], [texts.length]);
  }
});

test("each instance keeps a module of its own, unless weights are shared", async () => {
  const model = `
def forward(self: __torch__.M, INPUT0: Tensor) -> Tensor:
  counts = self.counts
  _0 = torch._set_item(counts, 0, torch.add(counts[0], 1))
  return torch.mul(INPUT0, counts[0])
`;
  const expected = { true: [1, 2, 3, 4, 5, 6], false: [1, 2, 1, 2, 1, 2] };
  for (const [value, counts] of Object.entries(expected)) {
    const config = {
      input: [row("INPUT0", TYPE_FP32, [1n])],
      output: [row("OUTPUT0", TYPE_FP32, [1n])],
      parameters: { ENABLE_WEIGHT_SHARING: { stringValue: value } },
    };
    await using opened = await open(model, { config, instanceCount: 3 });
    const request = opened.request([tensor("INPUT0", "FP32", [1], [1])]);
    const found: number[] = [];
    for (const instance of opened.instances.flatMap((each) => [each, each])) {
      const { outcomes } = await instance.execute([request]);
      found.push(...floats(outputsOf(outcomes[0])[0]!));
    }
    assert.deepEqual(found, counts);
  }
});

test("a failure in the model tells the line of its source", async () => {
  const model = `
def forward(self: __torch__.M, x: Tensor, y: Tensor) -> Tensor:
  return torch.matmul(x, y)
`;
  const config = {
    input: [row("x", TYPE_FP32, [-1n, -1n]), row("y", TYPE_FP32, [-1n, -1n])],
    output: [row("OUTPUT__0", TYPE_FP32, [-1n, -1n])],
  };
  await using opened = await open(model, { config });
  const request = opened.request([
    tensor("x", "FP32", [1, 2], [1, 2]),
    tensor("y", "FP32", [3, 1], [1, 2, 3]),
  ]);
  const { outcomes } = await opened.instance.execute([request]);
  const { error } = outcomes[0] as { error: Error };
  assert.match(error.message, /^PyTorch execute failure: /);
  assert.match(error.message, /File "code\/__torch__\.py", line 7, in forward/);
  assert.match(error.message, /return torch\.matmul\(x, y\)/);
  assert.match(error.message, /mat1 and mat2 shapes cannot be multiplied \(1x2 and 3x1\)/);
});

test("what a model returns beside tensors and strings is told with its type", async () => {
  const config = { input: [row("x")], output: [row("OUTPUT__0")] };
  const returns: readonly [type: string, value: string, expected: RegExp][] = [
    ["int", "3", /output at index 0 must be of type Tensor or List\[str\], received int/],
    ["Tensor", "torch.sum(x)", /output 'OUTPUT__0' is a scalar which is not supported/],
    [
      "Tensor",
      "torch.gt(x, 0)",
      /expects datatype TYPE_FP32 for output 'OUTPUT__0', model provides TYPE_BOOL/,
    ],
    ["Tensor", "torch.complex(x, x)", /model provides type 9 of PyTorch/],
  ];
  for (const [type, value, expected] of returns) {
    const model = `\ndef forward(self: __torch__.M, x: Tensor) -> ${type}:\n  return ${value}\n`;
    await using opened = await open(model, { config });
    const request = opened.request([tensor("x", "FP32", [4], [1, 2, 3, 4])]);
    const { outcomes } = await opened.instance.execute([request]);
    assert.match((outcomes[0] as { error: Error }).error.message, expected);
  }
});

const TWO = { input: [row("x"), row("y")], output: [row("OUTPUT__0")] };

test("every parameter of the reference's backend is taken", async () => {
  const values = {
    DISABLE_OPTIMIZED_EXECUTION: "true",
    INFERENCE_MODE: "false",
    DISABLE_CUDNN: "true",
    ENABLE_CACHE_CLEANING: "true",
    ENABLE_WEIGHT_SHARING: "true",
    ENABLE_TENSOR_FUSER: "0",
    ENABLE_JIT_EXECUTOR: "1",
    ENABLE_JIT_PROFILING: "1",
    ENABLE_NVFUSER: "1",
    INTRA_OP_THREAD_COUNT: "1",
    INTER_OP_THREAD_COUNT: "1",
  };
  const parameters = Object.fromEntries(
    Object.entries(values).map(([key, stringValue]) => [key, { stringValue }]),
  );
  await using opened = await open(ADD, { config: { ...TWO, parameters }, instanceCount: 2 });
  const ones = [1, 1, 1, 1];
  const request = opened.request([
    tensor("x", "FP32", [4], ones),
    tensor("y", "FP32", [4], ones),
  ]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 2, 2, 2]);
});

test("numbers that PyTorch keeps as negated views come out negated", async () => {
  const model = `
def forward(self: __torch__.M, x: Tensor) -> Tensor:
  return torch.imag(torch.conj(torch.complex(x, x)))
`;
  await using opened = await open(model, {
    config: { input: [row("x")], output: [row("OUTPUT__0")] },
  });
  const request = opened.request([tensor("x", "FP32", [4], [1, 2, 3, 4])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [-1, -2, -3, -4]);
});

test("a request whose client has gone is not run", async () => {
  await using opened = await open(IDENTITY, {
    config: { maxBatchSize: 8, input: [row("INPUT0")], output: [row("OUTPUT0")] },
  });
  const request = opened.request([tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])], {
    signal: AbortSignal.abort(),
  });
  const { outcomes } = await opened.instance.execute([request]);
  assert.match(Deno.inspect(outcomes[0]), /CANCELLED/);
});

test("a module of KIND_MODEL stays where it was when it was saved", async () => {
  const config = { ...TWO, instanceGroup: [{ kind: ModelInstanceGroup_Kind.MODEL }] };
  await using opened = await open(ADD, { config, placement: { kind: "KIND_MODEL" } });
  const ones = [1, 1, 1, 1];
  const request = opened.request([tensor("x", "FP32", [4], ones), tensor("y", "FP32", [4], ones)]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 2, 2, 2]);
});

test("a model without batching may have a flag as input", async () => {
  const model = `
def forward(self: __torch__.M, on: Tensor, x: Tensor) -> Tensor:
  return torch.where(on, x, torch.zeros_like(x))
`;
  const config = { input: [row("on", TYPE_BOOL, [1n]), row("x")], output: [row("OUTPUT__0")] };
  await using opened = await open(model, { config });
  const request = opened.request([
    tensor("on", "BOOL", [1], [1]),
    tensor("x", "FP32", [4], [1, 2, 3, 4]),
  ]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 2, 3, 4]);
});
