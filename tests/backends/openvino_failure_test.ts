import assert from "node:assert/strict";
import { buildModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";
import { type OpenedModel, openInstance, type OpenOptions, outputsOf, tensor } from "./fixture.ts";
import { frameworkLibrary } from "./framework_library.ts";

const library = frameworkLibrary("openvino");

function open(options: OpenOptions): Promise<OpenedModel> {
  return openInstance("openvino", {
    ...options,
    settings: { library: "path" in library ? library.path : "" },
  });
}

function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `openvino: ${name}`, ignore: "reason" in library, fn });
}

/** Takes three values, and fails with the number of those that it got instead. */
const THREE_VALUES = buildModel({
  nodes: [{ op: "Reshape", inputs: ["INPUT0", "shape"], outputs: ["OUTPUT0"] }],
  inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["n"] }],
  outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["m"] }],
  initializers: [{
    name: "shape",
    type: TYPE.INT64,
    dims: [1],
    raw: new Uint8Array(BigInt64Array.of(3n).buffer),
  }],
});

const CHAIN_LENGTH = 40;
/** A square matrix of any size multiplied by itself again and again. */
const CHAIN = buildModel({
  nodes: Array.from({ length: CHAIN_LENGTH }, (_, k) => ({
    op: "MatMul",
    inputs: [k === 0 ? "INPUT0" : `t${k - 1}`, "INPUT0"],
    outputs: [k === CHAIN_LENGTH - 1 ? "OUTPUT0" : `t${k}`],
  })),
  inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["n", "n"] }],
  outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["n", "n"] }],
});

test("runs that fail at the same time tell their own reasons", async () => {
  await using opened = await open({
    model: THREE_VALUES,
    config: { instanceGroup: [{ count: 2 }] },
    instanceCount: 2,
  });
  const send = async (index: number, count: number) => {
    const values = Array.from({ length: count }, () => 1);
    const request = opened.request([tensor("INPUT0", "FP32", [count], values)]);
    return (await opened.instances[index]!.execute([request])).outcomes[0]!;
  };
  const sizes = [5, 7];
  for (const index of sizes.keys()) outputsOf(await send(index, 3));
  const rounds = 100;
  let foreign = 0;
  for (let round = 0; round < rounds; round++) {
    const outcomes = await Promise.all(sizes.map((size, index) => send(index, size)));
    for (const [index, outcome] of outcomes.entries()) {
      assert.throws(() => outputsOf(outcome), /openvino error in running the model: .*reshape/);
      const { message } = (outcome as { readonly error: Error }).error;
      if (!message.includes(`the shape of input data (${sizes[index]})`)) foreign++;
    }
  }
  // The library has one place for the text: between a failure and its fetching there is a moment.
  assert.ok(foreign <= rounds / 10, `${foreign} of ${2 * rounds} texts are another run's`);
  for (const index of sizes.keys()) outputsOf(await send(index, 3));
});

test("a run whose client goes away is stopped, and its instance goes on", async () => {
  await using opened = await open({ model: CHAIN });
  const abort = new AbortController();
  const size = 1500;
  const matrix = tensor("INPUT0", "FP32", [size, size]);
  const began = performance.now();
  const running = opened.instance.execute([opened.request([matrix], { signal: abort.signal })]);
  setTimeout(() => abort.abort(), 100);
  const { outcomes } = await running;
  const stoppedMs = performance.now() - began;
  assert.match(Deno.inspect(outcomes[0]), /CANCELLED/);
  const small = opened.request([tensor("INPUT0", "FP32", [1, 1], [1])]);
  outputsOf((await opened.instance.execute([small])).outcomes[0]);
  // A whole run takes many seconds.
  assert.ok(stoppedMs < 10_000, `it ended after ${stoppedMs} ms`);
});

test("a library of operators that is none is told, and not loaded", async () => {
  const opening = open({
    model: THREE_VALUES,
    files: { "libmine.so": new Uint8Array(100) },
    config: {
      parameters: { CPU_EXTENSION_PATH: { stringValue: "1/libmine.so" } },
    },
  });
  await assert.rejects(opening, /1\/libmine\.so': it is no shared library/);
});
