import assert from "node:assert/strict";
import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import {
  dividingModel,
  doublingGraph,
  doublingModel,
  GRAPH_TYPE,
  identityModel,
  savedModel,
} from "../fixtures/tensorflow_graph.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { bytesData, floats, openInstance, type OpenOptions, outputsOf, tensor } from "./fixture.ts";
import { frameworkLibrary } from "./framework_library.ts";

const library = frameworkLibrary("tensorflow");
const ignore = "reason" in library;
const GRAPH = "model.savedmodel/saved_model.pb";

function openWith(options: OpenOptions) {
  const settings = { library: "path" in library ? library.path : "", ...options.settings };
  return openInstance("tensorflow", { ...options, settings });
}

function open(model: Uint8Array, options: OpenOptions = {}) {
  return openWith({ files: { [GRAPH]: model }, ...options });
}

const FP32 = GRAPH_TYPE.FP32;

if ("reason" in library) {
  Deno.test({ name: `tensorflow: skipped, ${library.reason}`, ignore: true, fn() {} });
} else {
  runBackendSuite({
    name: "tensorflow",
    open: (config, instanceCount = 1) =>
      open(identityModel([{ type: FP32, dims: [-1, 4] }]), { config, instanceCount }),
    failing: async () => ({ ...await open(dividingModel()), failing: 1 }),
  });
}

function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `tensorflow: ${name}`, ignore, fn });
}

const NUMBERS: Readonly<Partial<Record<Datatype, number>>> = (() => {
  const { BYTES: _bytes, COMPLEX64: _complex, ...numbers } = GRAPH_TYPE;
  return numbers;
})();

test("tensors of every datatype pass, one by one and batched", async () => {
  const datatypes = Object.keys(NUMBERS) as Datatype[];
  await using opened = await open(
    identityModel(datatypes.map((each) => ({ type: NUMBERS[each]!, dims: [-1, 3] }))),
  );
  const { config } = opened.source;
  assert.equal(config.maxBatchSize, 4);
  assert.equal(config.schedulingChoice.case, "dynamicBatching");
  const expected = new Map(
    datatypes.map((each, k) => [`INPUT${k}`, DATATYPES[each].config]),
  );
  assert.deepEqual(new Map(config.input.map(({ name, dataType }) => [name, dataType])), expected);
  const inputsFrom = (start: number) =>
    datatypes.map((datatype, k) => {
      const length = 3 * DATATYPES[datatype].byteSize;
      const value = (i: number) => datatype === "BOOL" ? i & 1 : start + i;
      return tensor(`INPUT${k}`, datatype, [1, 3], Uint8Array.from({ length }, (_, i) => value(i)));
    });
  const requests = [inputsFrom(1), inputsFrom(50)].map((inputs) => opened.request(inputs));
  for (const batch of [requests.slice(0, 1), requests]) {
    const { outcomes } = await opened.instance.execute(batch);
    outcomes.forEach((outcome, index) => {
      const outputs = new Map(outputsOf(outcome).map((each) => [each.name, each]));
      batch[index]!.inputs.forEach(({ name, datatype, data }) => {
        const output = outputs.get(name.replace("IN", "OUT"))!;
        assert.equal(output.datatype, datatype);
        assert.deepEqual([...output.shape], [1, 3]);
        assert.deepEqual([...output.data], [...data], datatype);
      });
    });
  }
});

test("strings of any length and content pass, batched, too", async () => {
  await using opened = await open(identityModel([{ type: GRAPH_TYPE.BYTES, dims: [-1, 2] }]));
  const long = new Uint8Array(100_000).fill(7);
  const rows = [["", "schön €"], [long, Uint8Array.of(0, 255, 0)], [
    "a".repeat(22),
    "b".repeat(23),
  ]];
  const requests = rows.map((row) =>
    opened.request([tensor("INPUT0", "BYTES", [1, 2], bytesData(row))])
  );
  for (let round = 0; round < 20; round++) {
    const { outcomes } = await opened.instance.execute(requests);
    outcomes.forEach((outcome, index) => {
      const [output] = outputsOf(outcome);
      assert.deepEqual([...output!.shape], [1, 2]);
      assert.deepEqual(output!.data, bytesData(rows[index]!));
    });
  }
});

test("strings that the shape does not tell are refused", async () => {
  await using opened = await open(identityModel([{ type: GRAPH_TYPE.BYTES, dims: [-1, 2] }]));
  for (const data of [bytesData(["one"]), bytesData(["1", "2", "3"]), Uint8Array.of(9, 0, 0, 0)]) {
    const request = opened.request([tensor("INPUT0", "BYTES", [1, 2], data)]);
    const { outcomes } = await opened.instance.execute([request]);
    assert.match(Deno.inspect(outcomes[0]), /does not hold the 2 elements/);
  }
});

test("empty tensors, scalars and ranks that are not fixed pass", async () => {
  await using opened = await open(
    identityModel([{ type: FP32, dims: [] }, { type: FP32, dims: undefined }]),
    {
      config: {
        input: [
          { name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [1n] },
          { name: "INPUT1", dataType: DataType.TYPE_FP32, dims: [-1n, -1n] },
        ],
        output: [
          { name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [1n] },
          { name: "OUTPUT1", dataType: DataType.TYPE_FP32, dims: [-1n, -1n] },
        ],
      },
    },
  );
  for (const [rows, columns] of [[2, 3], [0, 5], [300, 400]]) {
    const values = Array.from({ length: rows! * columns! }, (_, index) => index % 251);
    const { outcomes } = await opened.instance.execute([
      opened.request([
        tensor("INPUT0", "FP32", [1], [1.5]),
        tensor("INPUT1", "FP32", [rows!, columns!], values),
      ]),
    ]);
    const [first, second] = outputsOf(outcomes[0]);
    assert.deepEqual([...first!.shape], [1]);
    assert.deepEqual(floats(first!), [1.5]);
    assert.deepEqual([...second!.shape], [rows, columns]);
    assert.deepEqual(floats(second!), values);
  }
});

test("a frozen graph is completed and runs, by names with and without number", async () => {
  const files = { "model.graphdef": doublingGraph() };
  const listed = (names: [string, string]) => ({
    maxBatchSize: 8,
    input: [{ name: names[0], dataType: DataType.TYPE_FP32, dims: [4n] }],
    output: [{ name: names[1], dataType: DataType.TYPE_FP32, dims: [4n] }],
  });
  for (const config of [{}, listed(["x", "y"]), listed(["x:0", "y:0"])]) {
    await using opened = await openWith({ files, config });
    const [input] = opened.source.config.input;
    assert.deepEqual(input!.dims, [4n]);
    const request = opened.request([tensor(input!.name, "FP32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8])]);
    const { outcomes } = await opened.instance.execute([request]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 4, 6, 8, 10, 12, 14, 16]);
  }
});

test("an output that is an input passes", async () => {
  const side = { tensorName: "x:0", type: FP32, dims: [-1, 2] };
  const nodes = [{ name: "x", op: "Placeholder", types: { dtype: FP32 }, shape: [-1, 2] }];
  const signature = { inputs: { INPUT0: side }, outputs: { OUTPUT0: side } };
  await using opened = await open(
    savedModel(nodes, { signatures: { serving_default: signature } }),
  );
  const request = opened.request([tensor("INPUT0", "FP32", [1, 2], [3, 4])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [3, 4]);
});

test("tag and signature are chosen by parameters, and an only signature by itself", async () => {
  const request = tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4]);
  const cases: [Parameters<typeof doublingModel>[0], Record<string, string>][] = [
    [{ signature: "predict" }, { TF_SIGNATURE_DEF: "predict" }],
    [{ signature: "predict" }, {}],
    [{ tags: ["serve", "cpu"] }, { TF_GRAPH_TAG: "cpu,serve" }],
  ];
  for (const [init, parameters] of cases) {
    await using opened = await open(doublingModel(init), {
      config: { parameters: texts(parameters) },
    });
    const { outcomes } = await opened.instance.execute([opened.request([request])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [2, 4, 6, 8]);
  }
});

test("threads, sessions and the graph level of the configuration are taken", async () => {
  await using opened = await open(doublingModel(), {
    instanceCount: 3,
    config: {
      optimization: { graph: { level: -1 } },
      parameters: texts({
        TF_NUM_INTRA_THREADS: "1",
        TF_NUM_INTER_THREADS: "2",
        TF_USE_PER_SESSION_THREADS: "On",
        MAX_SESSION_SHARE_COUNT: "2",
      }),
    },
  });
  const answers = await Promise.all(
    opened.instances.map((instance, start) =>
      instance.execute([opened.request([tensor("INPUT0", "FP32", [1, 4], [start, 1, 2, 3])])])
    ),
  );
  const firsts = answers.map(({ outcomes }) => floats(outputsOf(outcomes[0])[0]!)[0]);
  assert.deepEqual(firsts, [0, 2, 4]);
});

/** A library with an operator of its own, or undefined where there is no compiler. */
async function buildOperator(framework: string): Promise<Uint8Array | undefined> {
  const source = new URL("../native/tensorflow/same_operator.c", import.meta.url).pathname;
  const target = await Deno.makeTempFile({ suffix: ".so" });
  try {
    const args = ["-O1", "-shared", "-fPIC", "-o", target, source, framework];
    const { code, stderr } = await new Deno.Command("gcc", { args }).output();
    assert.equal(code, 0, new TextDecoder().decode(stderr));
    return await Deno.readFile(target);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  } finally {
    await Deno.remove(target);
  }
}

test("operators of the model come from a library in its folder", async () => {
  const path = "path" in library ? library.path : "";
  const operator = await buildOperator(path.replace("_cc.so", "_framework.so"));
  if (operator === undefined) return;
  const side = (tensorName: string) => ({ tensorName, type: FP32, dims: [-1, 2] });
  const model = savedModel([
    { name: "x", op: "Placeholder", types: { dtype: FP32 }, shape: [-1, 2] },
    { name: "y", op: "NereidSame", inputs: ["x"] },
  ], {
    signatures: { serving_default: { inputs: { a: side("x:0") }, outputs: { b: side("y:0") } } },
  });
  await using opened = await openWith({
    files: { [GRAPH]: model, "libsame.so": operator },
    config: { modelOperations: { opLibraryFilename: ["1/libsame.so"] } },
  });
  const { outcomes } = await opened.instance.execute([
    opened.request([tensor("a", "FP32", [1, 2], [3, 4])]),
  ]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [3, 4]);
});

test("a request whose client has gone is not run", async () => {
  await using opened = await open(doublingModel());
  const request = opened.request([tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])], {
    signal: AbortSignal.abort(),
  });
  const { outcomes } = await opened.instance.execute([request]);
  assert.match(Deno.inspect(outcomes[0]), /CANCELLED/);
});

function texts(values: Readonly<Record<string, string>>) {
  return Object.fromEntries(
    Object.entries(values).map(([key, stringValue]) => [key, { stringValue }]),
  );
}

const listed = (dataType: DataType, dims: bigint[]) => ({
  maxBatchSize: 4,
  input: [{ name: "INPUT0", dataType, dims }],
  output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
});
const two = () => {
  const side = (tensorName: string) => ({ tensorName, type: FP32, dims: [-1] });
  const signature = { inputs: { a: side("x:0") }, outputs: { b: side("x:0") } };
  const nodes = [{ name: "x", op: "Placeholder", types: { dtype: FP32 }, shape: [-1] }];
  return savedModel(nodes, { signatures: { embed: signature, classify: signature } });
};

const REFUSED: Readonly<Record<string, readonly [Uint8Array, OpenOptions, RegExp]>> = {
  "a signature that is not there": [
    doublingModel(),
    { config: { parameters: texts({ TF_SIGNATURE_DEF: "predict" }) } },
    /has no signature 'predict'; signatures of the graph with tags 'serve': 'serving_default'/,
  ],
  "several signatures but the usual one": [
    two(),
    {},
    /has no signature 'serving_default';.*: 'classify', 'embed'.*TF_SIGNATURE_DEF/s,
  ],
  "no signature at all": [
    savedModel([], { signatures: {} }),
    {},
    /signatures.*: none.*tf\.saved_model\.save/s,
  ],
  "a tag that is not there": [
    doublingModel(),
    { config: { parameters: texts({ TF_GRAPH_TAG: "train" }) } },
    /has no graph with tag 'train'; graphs have the tags 'serve'/,
  ],
  "a graph that is cut off": [
    doublingModel().subarray(0, 100),
    {},
    /saved_model\.pb' of 100 bytes is cut off, or no SavedModel/,
  ],
  "an operator that is not there": [
    doublingModel({ operator: "NoSuchOperator" }),
    {},
    /has no operator 'NoSuchOperator': model_operations/,
  ],
  "a signature that names no tensor of the graph": [
    savedModel([], {
      signatures: {
        serving_default: {
          inputs: { INPUT0: { tensorName: "gone:0", type: FP32, dims: [-1] } },
          outputs: { OUTPUT0: { tensorName: "gone:1", type: FP32, dims: [-1] } },
        },
      },
    }),
    {},
    /input 'INPUT0' of its signature is tensor 'gone:0', which the graph has not/,
  ],
  "a datatype that cannot be served": [
    identityModel([{ type: GRAPH_TYPE.COMPLEX64, dims: [-1] }]),
    {},
    /input 'INPUT0' has data type DT_COMPLEX64, which cannot be served/,
  ],
  "another datatype in the configuration": [
    doublingModel(),
    { config: listed(DataType.TYPE_INT32, [4n]) },
    /configuration expects datatype TYPE_INT32 for input 'INPUT0', model provides TYPE_FP32/,
  ],
  "other dims in the configuration": [
    doublingModel(),
    { config: listed(DataType.TYPE_FP32, [5n]) },
    /tensor 'INPUT0': the model expects 2 dimensions \(shape \[-1,4\]\)/,
  ],
  "a negative number of threads": [
    doublingModel(),
    { config: { parameters: texts({ TF_NUM_INTER_THREADS: "-1" }) } },
    /'TF_NUM_INTER_THREADS' of model 'm' must be a whole number from 0 on, got '-1'/,
  ],
  "an instance on a GPU": [
    doublingModel(),
    { placement: { kind: "KIND_GPU" } },
    /cannot have KIND_GPU: models of TensorFlow run on CPUs only/,
  ],
  "a file of initial operations that is not there": [
    doublingModel(),
    { config: { parameters: texts({ TF_INIT_OPS_FILE: "init.json" }) } },
    /unable to find 'init\.json' \(parameter 'TF_INIT_OPS_FILE'\)/,
  ],
  "a library of operators that is not there": [
    doublingModel(),
    { config: { modelOperations: { opLibraryFilename: ["libmine.so"] } } },
    /loading 'libmine\.so' \(op_library_filename\) of model 'm'/,
  ],
  "a library of operators that is none": [
    doublingModel(),
    {
      files: { [GRAPH]: doublingModel(), "libmine.so": new Uint8Array(100) },
      config: { modelOperations: { opLibraryFilename: ["1/libmine.so"] } },
    },
    /loading 'libmine\.so' \(op_library_filename\) of model 'm'.*it is no shared library/,
  ],
};

for (const [what, [model, options, expected]] of Object.entries(REFUSED)) {
  test(`a load with ${what} fails with the place and the way out`, async () => {
    await assert.rejects(open(model, options), (error: Error) => {
      assert.match(error.message, expected);
      return true;
    });
  });
}

test("a frozen graph that is cut off is refused", async () => {
  await assert.rejects(
    openWith({ files: { "model.graphdef": doublingGraph().subarray(0, 50) } }),
    /loading model 'm' from '.*model\.graphdef': .*the file is cut off, or no graph/s,
  );
});

Deno.test("tensorflow: a missing library is told with the package that brings it", async () => {
  await assert.rejects(
    openInstance("tensorflow", {
      files: { [GRAPH]: doublingModel() },
      settings: { library: "/nowhere/libtensorflow_cc.so.2" },
    }),
    /Cannot open the TensorFlow library.*'\/nowhere\/libtensorflow_cc\.so\.2'.*pip install tensorflow-cpu/s,
  );
});
