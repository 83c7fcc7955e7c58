import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { buildPlan, identityPlan, type PlanInit } from "../native/tensorrt/plan.ts";
import { MAJORS } from "../native/tensorrt/stand_ins.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { type ConfigInit, floats, outputsOf, tensor } from "./fixture.ts";
import { count, openPlan, ramp, reasonToSkip, test, withEnv } from "./tensorrt_fixture.ts";

for (const major of reasonToSkip === undefined ? MAJORS : []) {
  runBackendSuite({
    name: `tensorrt ${major}`,
    open: (config, instanceCount = 1) => openPlan({ major, config, instanceCount }),
    async failing() {
      // The batch fails, and then the second of its requests.
      Deno.env.set("STAND_IN_FAIL", "enqueue:1,enqueue:3");
      const opened = await openPlan({ major });
      return {
        ...opened,
        failing: 1,
        async [Symbol.asyncDispose]() {
          Deno.env.delete("STAND_IN_FAIL");
          await opened[Symbol.asyncDispose]();
        },
      };
    },
  });

  test(`${major}: everything is given back, and no call was wrong`, async () => {
    const before = count(major);
    const opened = await openPlan({ major, instanceCount: 3 });
    assert.ok(count(major).tensorRt > before.tensorRt);
    const input = tensor("INPUT0", "FP32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8]);
    for (const instance of opened.instances) {
      const { outcomes } = await instance.execute([opened.request([input])]);
      assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(input));
    }
    await opened[Symbol.asyncDispose]();
    assert.deepEqual(count(major), before);
  });

  test(`${major}: auto-complete fills batch size, scheduler, inputs and outputs`, async () => {
    await using opened = await openPlan({ major });
    const { config } = opened.source;
    assert.equal(config.maxBatchSize, 8);
    assert.equal(config.schedulingChoice.case, "dynamicBatching");
    const [input] = config.input;
    assert.equal(input?.name, "INPUT0");
    assert.equal(input?.dataType, DataType.TYPE_FP32);
    assert.deepEqual(input?.dims, [4n]);
    assert.deepEqual(config.output.map(({ name, dims }) => [name, dims]), [["OUTPUT0", [4n]]]);
  });

  test(`${major}: an output whose shape depends on the data`, async () => {
    const type = major >= 10 ? "INT64" : "INT32";
    await using opened = await openPlan({
      major,
      plan: buildPlan({
        version: major,
        inputs: [{ name: "x", type: "FLOAT", dims: [3, 4] }],
        outputs: [{ name: "y", type, dims: [2, -1] }],
        ops: ["nonzero x y"],
      }),
    });
    assert.equal(opened.source.config.maxBatchSize, 0);
    for (const values of [[0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3], new Array(12).fill(0)]) {
      const { outcomes } = await opened.instance.execute([
        opened.request([tensor("x", "FP32", [3, 4], values)]),
      ]);
      const [output] = outputsOf(outcomes[0]);
      const indices = values.flatMap((value, index) => value === 0 ? [] : [index]);
      assert.deepEqual([...output!.shape], [2, indices.length]);
      assert.deepEqual(
        integers(output!.data, type),
        [...indices.map((index) => Math.floor(index / 4)), ...indices.map((index) => index % 4)],
      );
    }
  });

  test(`${major}: shape tensors decide about shapes, requests are joined by their first value`, async () => {
    const type = major >= 10 ? "INT64" : "INT32";
    await using opened = await openPlan({
      major,
      plan: buildPlan({
        version: major,
        inputs: [
          { name: "x", type: "FLOAT", dims: [-1, 2], profiles: [[[1, 2], [4, 2], [8, 2]]] },
          { name: "s", type, dims: [3], isShape: true },
        ],
        outputs: [
          { name: "filled", type: "FLOAT", dims: [-1, -1, -1] },
          { name: "shape", type, dims: [2], isShape: true },
        ],
        ops: ["fill s filled", "shapeof x shape"],
      }),
    });
    const { config } = opened.source;
    assert.equal(config.maxBatchSize, 8);
    const [, shapeInput] = config.input;
    assert.deepEqual([shapeInput?.dims, shapeInput?.isShapeTensor], [[2n], true]);
    const datatype = type as "INT64" | "INT32";
    const requestOf = (rows: number, sizes: readonly number[]) =>
      opened.request([
        tensor("x", "FP32", [rows, 2]),
        tensor("s", datatype, [3], [rows, ...sizes]),
      ]);
    const same = [requestOf(1, [2, 3]), requestOf(2, [2, 3])];
    const { outcomes } = await opened.instance.execute(same);
    outcomes.forEach((outcome, index) => {
      const [filled, shape] = outputsOf(outcome);
      assert.deepEqual([...filled!.shape], [index + 1, 2, 3]);
      assert.deepEqual(floats(filled!), new Array((index + 1) * 6).fill(1));
      assert.deepEqual(integers(shape!.data, type), [index + 1, 2]);
    });
    const other = [requestOf(1, [5, 1]), requestOf(1, [1, 7])];
    const each = (await opened.instance.execute(other)).outcomes.map((outcome) =>
      outputsOf(outcome)[0]!.shape
    );
    assert.deepEqual(each, [[1, 5, 1], [1, 1, 7]]);
  });
}

function integers(data: Uint8Array, type: string): number[] {
  const copy = data.slice().buffer;
  return type === "INT64" ? [...new BigInt64Array(copy)].map(Number) : [...new Int32Array(copy)];
}

test("tensors of every type pass, one by one and batched", async () => {
  const types = {
    FLOAT: "FP32",
    HALF: "FP16",
    INT8: "INT8",
    INT32: "INT32",
    BOOL: "BOOL",
    UINT8: "UINT8",
    FP8: "UINT8",
    BF16: "BF16",
    INT64: "INT64",
    E8M0: "UINT8",
  } as const;
  const names = Object.keys(types) as (keyof typeof types)[];
  const profiles = [[[1, 3], [4, 3], [8, 3]]] as const;
  await using opened = await openPlan({
    plan: buildPlan({
      version: 10,
      inputs: names.map((type, k) => ({ name: `I${k}`, type, dims: [-1, 3], profiles })),
      outputs: names.map((type, k) => ({ name: `O${k}`, type, dims: [-1, 3] })),
      ops: names.map((_, k) => `identity I${k} O${k}`),
    }),
  });
  const inputsFrom = (start: number) =>
    names.map((type, k) => {
      const size = { FP32: 4, INT32: 4, FP16: 2, BF16: 2, INT64: 8 } as Record<string, number>;
      const bytes = Uint8Array.from(
        { length: 3 * (size[types[type]] ?? 1) },
        (_, i) => (start + i) & 255,
      );
      return tensor(`I${k}`, types[type], [1, 3], bytes);
    });
  const requests = [inputsFrom(1), inputsFrom(50)].map((inputs) => opened.request(inputs));
  for (const batch of [requests.slice(0, 1), requests]) {
    const { outcomes } = await opened.instance.execute(batch);
    outcomes.forEach((outcome, index) =>
      outputsOf(outcome).forEach((output, k) => {
        assert.equal(output.datatype, types[names[k]!]);
        assert.deepEqual([...output.data], [...batch[index]!.inputs[k]!.data]);
      })
    );
  }
});

test("an instance with several profiles takes the one that suits best", async () => {
  const plan: PlanInit = {
    version: 10,
    inputs: [{
      name: "INPUT0",
      type: "FLOAT",
      dims: [-1, -1],
      profiles: [[[1, 1], [1, 4], [2, 8]], [[1, 16], [4, 32], [8, 64]]],
    }],
    outputs: [{ name: "OUTPUT0", type: "FLOAT", dims: [-1, -1] }],
    ops: ["identity INPUT0 OUTPUT0"],
  };
  const config: ConfigInit = { instanceGroup: [{ name: "m", profile: ["0", "1"] }] };
  await using opened = await openPlan({ plan: buildPlan(plan), config });
  assert.equal(opened.source.config.maxBatchSize, 8);
  for (const [rows, size] of [[1, 3], [2, 8], [1, 16], [8, 64], [2, 2]] as const) {
    const input = tensor("INPUT0", "FP32", [rows, size], ramp(rows * size));
    const { outcomes } = await opened.instance.execute([opened.request([input])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(input));
  }
  const between = tensor("INPUT0", "FP32", [1, 12], ramp(12));
  const { outcomes } = await opened.instance.execute([opened.request([between])]);
  assert.throws(() => outputsOf(outcomes[0]), {
    code: "INVALID_ARG",
    message: "request specifies invalid shape for input 'INPUT0' for m. Error details: model " +
      "expected the shape of dimension 1 to be between 1 and 8 but received 12",
  });
  await assert.rejects(
    openPlan({ plan: buildPlan(plan), config: { instanceGroup: [{ name: "m", profile: ["2"] }] } }),
    /specifies profile '2', the plan has 2 optimization profiles: expected a number from 0 to 1/,
  );
});

test("CUDA graphs are captured and used, also for fewer rows where that is allowed", async () => {
  const graphs = { graphs: true, busyWaitEvents: true, outputCopyStream: true };
  for (
    const graphSpec of [[], [{ batchSize: 8, graphLowerBound: { batchSize: 3 } }]]
  ) {
    await using opened = await openPlan({
      config: { optimization: { cuda: { ...graphs, graphSpec } } },
    });
    // From now on nothing runs without a graph.
    await withEnv({ STAND_IN_FAIL: "enqueue:*" }, async () => {
      for (const rows of graphSpec.length === 0 ? [1, 2, 3, 4, 6, 8] : [3, 5, 8]) {
        const input = tensor("INPUT0", "FP32", [rows, 4], ramp(rows * 4));
        const { outcomes } = await opened.instance.execute([opened.request([input])]);
        assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(input), `${rows} rows`);
      }
      const rows = graphSpec.length === 0 ? 5 : 2;
      const without = tensor("INPUT0", "FP32", [rows, 4], ramp(rows * 4));
      const { outcomes } = await opened.instance.execute([opened.request([without])]);
      assert.throws(() => outputsOf(outcomes[0]), /TensorRT cannot run model 'm'.*illegal memory/);
    });
    const input = tensor("INPUT0", "FP32", [5, 4], ramp(20));
    const { outcomes } = await opened.instance.execute([opened.request([input])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(input));
  }
});

test("a capture that fails costs the graph, not the model", async () => {
  await withEnv({ STAND_IN_FAIL: "cudaStreamEndCapture:1,enqueue:4" }, async () => {
    const before = count();
    const opened = await openPlan({ config: { optimization: { cuda: { graphs: true } } } });
    for (let rows = 1; rows <= 8; rows++) {
      const input = tensor("INPUT0", "FP32", [rows, 4], ramp(rows * 4));
      const { outcomes } = await opened.instance.execute([opened.request([input])]);
      assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(input));
    }
    await opened[Symbol.asyncDispose]();
    assert.deepEqual(count(), before);
  });
});

for (
  const [name, optimization] of Object.entries({
    "eager batching": { eagerBatching: true },
    "no pinned memory": {
      inputPinnedMemory: { enable: false },
      outputPinnedMemory: { enable: false },
    },
    "a stream for outputs and the highest priority": {
      priority: 1,
      cuda: { outputCopyStream: true },
    },
  })
) {
  test(`${name} gives the same answers`, async () => {
    await using opened = await openPlan({
      plan: buildPlan({
        version: 10,
        inputs: ["a", "b"].map((each) => ({
          name: each,
          type: "FLOAT",
          dims: [-1, 8192],
          profiles: [[[1, 8192], [4, 8192], [8, 8192]]],
        })),
        outputs: [{ name: "sum", type: "FLOAT", dims: [-1, 8192] }],
        ops: ["add a b sum"],
      }),
      config: { optimization },
    });
    const requests = [1, 2].map((rows) =>
      opened.request([
        tensor("a", "FP32", [rows, 8192], ramp(rows * 8192)),
        tensor("b", "FP32", [rows, 8192], ramp(rows * 8192)),
      ])
    );
    for (let run = 0; run < 3; run++) {
      const { outcomes } = await opened.instance.execute(requests);
      outcomes.forEach((outcome, index) => {
        const expected = ramp((index + 1) * 8192).map((value) => 2 * value);
        assert.deepEqual(floats(outputsOf(outcome)[0]!), expected);
        (outcome as { release?: () => void }).release?.();
      });
    }
  });
}

test("a plan for each kind of GPU is chosen by compute capability", async () => {
  await using opened = await openPlan({
    files: { "a100.plan": identityPlan(10, { dims: [2] }), "model.plan": new Uint8Array() },
    config: { ccModelFilenames: { "8.6": "a100.plan" } },
  });
  assert.deepEqual(opened.source.config.input[0]?.dims, [2n]);
});
