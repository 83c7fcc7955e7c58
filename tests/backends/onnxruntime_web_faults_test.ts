import assert from "node:assert/strict";
import { OnnxWebBackend } from "../../backends/onnxruntime_web/mod.ts";
import {
  addModel,
  buildModel,
  identityModel,
  ONNX_DATA_TYPE as TYPE,
} from "../fixtures/onnx_builder.ts";
import { delay, waitUntil } from "../delay.ts";
import { floats, openInstance, outputsOf, tensor } from "./fixture.ts";

const NAME = "onnxruntime_web";

/** A tensor of zeros with the shape that comes in. */
const zerosModel = () =>
  buildModel({
    nodes: [{ op: "ConstantOfShape", inputs: ["INPUT0"], outputs: ["OUTPUT0"] }],
    inputs: [{ name: "INPUT0", type: TYPE.INT64, dims: [3] }],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: [null, null, null] }],
  });

/** A backend whose Workers the test can reach. */
function watched(workers: Worker[]) {
  return {
    openBackend: (context: ConstructorParameters<typeof OnnxWebBackend>[0]) =>
      new OnnxWebBackend(context, NAME, {
        startWorker: () => {
          const url = new URL("../../backends/onnxruntime_web/worker_entry.ts", import.meta.url);
          const worker = new Worker(url, { type: "module" });
          workers.push(worker);
          return worker;
        },
      }),
  };
}

Deno.test(`${NAME}: a Worker that crashes fails the run, and is started again`, async () => {
  const workers: Worker[] = [];
  await using opened = await openInstance(NAME, {
    model: addModel(["batch", 2]),
    ...watched(workers),
  });
  const { instance, request } = opened;
  const inputs = opened.source.config.input.map(({ name }) => tensor(name, "FP32", [1, 2], [1, 2]));
  workers[0]!.onmessage = null;
  const running = instance.execute([request(inputs)]);
  await delay(10);
  workers[0]!.dispatchEvent(new ErrorEvent("error", { message: "it broke", cancelable: true }));
  const { outcomes } = await running;
  assert.throws(() => outputsOf(outcomes[0]), {
    code: "UNAVAILABLE",
    message: /Worker of the model ended: it broke/,
  });
  assert.equal((await instance.isReady!()).isReady, false);
  // The request waits for the Worker that is started again.
  const { outcomes: later } = await instance.execute([request(inputs)]);
  assert.deepEqual(floats(outputsOf(later[0])[0]!), [2, 4]);
  assert.equal((await instance.isReady!()).isReady, true);
  assert.equal(workers.length, 2);
});

Deno.test(`${NAME}: a run that needs more memory than there is gives an error, the next one works`, async () => {
  await using opened = await openInstance(NAME, { model: zerosModel() });
  const run = async (shape: number[]) => {
    const input = tensor("INPUT0", "INT64", [3], shape);
    return (await opened.instance.execute([opened.request([input])])).outcomes[0];
  };
  assert.equal(floats(outputsOf(await run([1, 2, 3]))[0]!).length, 6);
  // Just below the 4 GiB that there are, at them, and far beyond.
  for (const shape of [[1 << 14, 65504, 1], [1 << 15, 1 << 15, 1], [1 << 20, 1 << 20, 1 << 20]]) {
    const outcome = await run(shape);
    assert.throws(() => outputsOf(outcome), { message: /^onnx runtime error \d+: / });
  }
  assert.equal(floats(outputsOf(await run([2, 2, 2]))[0]!).length, 8);
});

Deno.test(`${NAME}: a run that nobody waits for any more costs the Worker, not the instance`, async () => {
  const workers: Worker[] = [];
  await using opened = await openInstance(NAME, {
    model: addModel(["batch", 2]),
    ...watched(workers),
  });
  const { instance, request } = opened;
  const inputs = opened.source.config.input.map(({ name }) => tensor(name, "FP32", [1, 2], [1, 2]));
  // Its answers are lost: the run takes for ever.
  workers[0]!.onmessage = null;
  const controller = new AbortController();
  const running = instance.execute([request(inputs, { signal: controller.signal })]);
  await delay(10);
  controller.abort();
  const { outcomes } = await running;
  assert.throws(() => outputsOf(outcomes[0]), { code: "CANCELLED" });
  assert.ok(await waitUntil(() => workers.length === 2, 10_000));
  const { outcomes: later } = await instance.execute([request(inputs)]);
  assert.deepEqual(floats(outputsOf(later[0])[0]!), [2, 4]);
});

Deno.test(`${NAME}: what is no model, and what this runtime has not, is refused with the reason`, async () => {
  const open = (model: Uint8Array, config = {}) => openInstance(NAME, { model, config });
  await assert.rejects(open(new Uint8Array(0)), /the file is empty/);
  await assert.rejects(
    open(new TextEncoder().encode("never a model")),
    /is not an ONNX model, or it is cut off/,
  );
  await assert.rejects(
    open(addModel(["batch", 2]).subarray(0, 60)),
    /onnx runtime error \d+: .*cut off/s,
  );
  await assert.rejects(open(identityModel([{ type: TYPE.BFLOAT16, dims: [2] }])), {
    code: "UNSUPPORTED",
    message: /BF16, which onnxruntime-web does not have/,
  });
  await assert.rejects(
    open(addModel(["batch", 2]), { modelOperations: { opLibraryFilename: ["ops.so"] } }),
    { code: "UNSUPPORTED", message: /only the native ONNX Runtime can open/ },
  );
});

Deno.test(`${NAME}: weights in other files of the version are loaded, those elsewhere are not`, async () => {
  const model = (location: string) =>
    buildModel({
      nodes: [{ op: "Add", inputs: ["X", "W"], outputs: ["Y"] }],
      inputs: [{ name: "X", type: TYPE.FLOAT, dims: ["batch", 4] }],
      outputs: [{ name: "Y", type: TYPE.FLOAT, dims: ["batch", 4] }],
      initializers: [{
        name: "W",
        type: TYPE.FLOAT,
        dims: [4],
        external: { location, byteSize: 16 },
      }],
    });
  const files = { "weights.bin": new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer) };
  await using opened = await openInstance(NAME, { model: model("weights.bin"), files });
  const request = opened.request([tensor("X", "FP32", [1, 4], [10, 10, 10, 10])]);
  const { outcomes } = await opened.instance.execute([request]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [11, 12, 13, 14]);
  await assert.rejects(openInstance(NAME, { model: model("../weights.bin") }), {
    code: "INVALID_ARG",
    message: /outside of its folder/,
  });
});
