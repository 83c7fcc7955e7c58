/** Tensors in memory of clients on the GPU of the model: no byte of them may come to this machine. */
import assert from "node:assert/strict";
import type { ExecuteRequest } from "../../backends/backend.ts";
import { createDeviceTensor } from "../../proto/tensor.ts";
import { buildPlan } from "../native/tensorrt/plan.ts";
import { MAJORS } from "../native/tensorrt/stand_ins.ts";
import { checkGpuTensors, onGpu, targetAt as target } from "./gpu_tensor_suite.ts";
import { floats, outputsOf, tensor } from "./fixture.ts";
import { ClientGpu, count, openPlan, test, withEnv } from "./tensorrt_fixture.ts";

type Opened = Awaited<ReturnType<typeof openPlan>>;

/** A request for OUTPUT0 from so many rows at `offset` into as many at `to`. */
function move(
  opened: Opened,
  gpu: ClientGpu,
  { rows = 1, offset, to }: {
    readonly rows?: number;
    readonly offset: number;
    readonly to: number;
  },
): ExecuteRequest {
  const input = onGpu("INPUT0", [rows, 4], gpu.place(offset, 16 * rows));
  const targets = new Map([["OUTPUT0", target(gpu.place(to, 16 * rows))]]);
  return opened.request([input], { targets });
}

/** Runs the requests, and tells how many copies went to the GPU, from it, and on it. */
async function run(opened: Opened, gpu: ClientGpu, requests: readonly ExecuteRequest[]) {
  const before = gpu.copies();
  const { outcomes } = await opened.instance.execute(requests);
  const after = gpu.copies();
  const copies = after.map((number, kind) => number - before[kind]!);
  return { copies, outputs: outcomes.map((outcome) => outputsOf(outcome)) };
}

const ROW = [1, 2, 3, 4];

for (const major of MAJORS) {
  test(`${major}: one request is computed where its tensors are`, async () => {
    const before = count(major);
    {
      await using opened = await openPlan({ major });
      assert.deepEqual(opened.instance.memoryUse, { host: false, cudaDeviceId: 0 });
      using gpu = new ClientGpu(4096);
      gpu.write(0, [...ROW, ...ROW]);
      const order = move(opened, gpu, { rows: 2, offset: 0, to: 1024 });
      const { copies, outputs: [outputs] } = await run(opened, gpu, [order]);
      const [output] = outputs!;
      assert.deepEqual(copies, [0, 0, 0]);
      assert.deepEqual(output!.place, gpu.place(1024, 32));
      assert.deepEqual([...output!.shape], [2, 4]);
      assert.deepEqual(gpu.read(1024, 8), [...ROW, ...ROW]);
      // Then one through memory of the instance, and again one without.
      const input = tensor("INPUT0", "FP32", [1, 4], [5, 6, 7, 8]);
      const plain = await run(opened, gpu, [opened.request([input])]);
      assert.deepEqual([plain.copies, floats(plain.outputs[0]![0]!)], [[1, 1, 0], [5, 6, 7, 8]]);
      const again = await run(opened, gpu, [move(opened, gpu, { offset: 1024, to: 2048 })]);
      assert.deepEqual([again.copies, gpu.read(2048, 4)], [[0, 0, 0], ROW]);
    }
    assert.deepEqual(count(major), before);
  });
}

test("the checks of a real GPU pass on the stand-in", async () => {
  await using opened = await openPlan();
  using gpu = new ClientGpu(8192);
  await checkGpuTensors(opened.instance, gpu, { movesThere: true });
});

test("what TensorRT does not take where it is moves on the GPU", async () => {
  await using opened = await openPlan();
  using gpu = new ClientGpu(4096);
  gpu.write(16, ROW);
  const { copies } = await run(opened, gpu, [move(opened, gpu, { offset: 16, to: 1040 })]);
  assert.deepEqual(copies, [0, 0, 2]);
  assert.deepEqual(gpu.read(1040, 4), ROW);
});

test("a batch is gathered and shared on the GPU", async () => {
  await using opened = await openPlan();
  using gpu = new ClientGpu(4096);
  for (const k of [0, 1, 2, 3]) gpu.write(16 * k, [k, k, k, k]);
  const orders = [
    move(opened, gpu, { offset: 0, to: 1024 }),
    move(opened, gpu, { rows: 2, offset: 16, to: 1280 }),
    move(opened, gpu, { offset: 48, to: 1536 }),
  ];
  const { copies, outputs } = await run(opened, gpu, orders);
  assert.deepEqual(copies, [0, 0, 6]);
  assert.deepEqual(gpu.read(1024, 4), [0, 0, 0, 0]);
  assert.deepEqual(gpu.read(1280, 8), [1, 1, 1, 1, 2, 2, 2, 2]);
  assert.deepEqual(gpu.read(1536, 4), [3, 3, 3, 3]);
  assert.deepEqual(outputs.map(([output]) => output!.place?.byteSize), [16, 32, 16]);
  assert.equal(opened.retryCount(), 0);
});

test("a batch of requests on the GPU and others", async () => {
  for (const config of [{}, { optimization: { eagerBatching: true } }]) {
    await using opened = await openPlan({ config });
    using gpu = new ClientGpu(4096);
    gpu.write(0, ROW);
    const plain = tensor("INPUT0", "FP32", [1, 4], [5, 6, 7, 8]);
    const small = opened.request([plain], {
      targets: new Map([["OUTPUT0", target(gpu.place(2048, 12))]]),
    });
    const orders = [move(opened, gpu, { offset: 0, to: 1024 }), opened.request([plain]), small];
    const { copies, outputs } = await run(opened, gpu, orders);
    assert.deepEqual(copies, [2, 1, 2]);
    assert.deepEqual(gpu.read(1024, 4), ROW);
    for (const [output] of outputs.slice(1)) {
      // Also of the one whose place is too small: the core tells.
      assert.equal(output!.place, undefined);
      assert.deepEqual(floats(output!), [5, 6, 7, 8]);
    }
  }
});

test("an input on another GPU comes by way of this machine", async () => {
  await using opened = await openPlan();
  using gpu = new ClientGpu(4096);
  const place = { ...gpu.place(0, 16), deviceId: 1 };
  const data = tensor("INPUT0", "FP32", [1, 4], ROW).data;
  const input = createDeviceTensor(
    { name: "INPUT0", datatype: "FP32", shape: [1, 4] },
    place,
    () => data,
  );
  const order = opened.request([input], {
    targets: new Map([["OUTPUT0", target(place)]]),
  });
  const { copies, outputs } = await run(opened, gpu, [order]);
  assert.deepEqual([copies, floats(outputs[0]![0]!)], [[1, 1, 0], ROW]);
});

test("captured runs keep their memory: tensors move on the GPU", async () => {
  const config = { optimization: { cuda: { graphs: true, outputCopyStream: true } } };
  await using opened = await openPlan({ config });
  using gpu = new ClientGpu(4096);
  gpu.write(0, ROW);
  const { copies } = await run(opened, gpu, [move(opened, gpu, { offset: 0, to: 1024 })]);
  assert.deepEqual([copies, gpu.read(1024, 4)], [[0, 0, 2], ROW]);
  // Shapes that were not captured are computed in place, and those that were still work afterwards.
  gpu.write(0, [...ROW, ...ROW, ...ROW, ...ROW, ...ROW]);
  const five = await run(opened, gpu, [move(opened, gpu, { rows: 5, offset: 0, to: 1024 })]);
  assert.deepEqual([five.copies, gpu.read(1088, 4)], [[0, 0, 0], ROW]);
  const input = tensor("INPUT0", "FP32", [1, 4], [5, 6, 7, 8]);
  const { outputs } = await run(opened, gpu, [opened.request([input])]);
  assert.deepEqual(floats(outputs[0]![0]!), [5, 6, 7, 8]);
});

test("an output whose size the run tells goes to its place when it fits", async () => {
  const plan = buildPlan({
    version: 10,
    inputs: [{ name: "x", type: "FLOAT", dims: [4] }],
    outputs: [{ name: "y", type: "INT64", dims: [1, -1] }],
    ops: ["nonzero x y"],
  });
  await using opened = await openPlan({ plan });
  using gpu = new ClientGpu(4096);
  gpu.write(0, [0, 1, 0, 1]);
  const orderInto = (byteSize: number) =>
    opened.request([onGpu("x", [4], gpu.place(0, 16))], {
      targets: new Map([["y", target(gpu.place(1024, byteSize))]]),
    });
  const placed = await run(opened, gpu, [orderInto(16)]);
  assert.deepEqual(placed.copies, [0, 0, 1]);
  assert.deepEqual([...placed.outputs[0]![0]!.shape], [1, 2]);
  assert.deepEqual(gpu.read(1024, 4), [...new Float32Array(BigInt64Array.of(1n, 3n).buffer)]);
  gpu.write(1024, ROW);
  const tooLarge = await run(opened, gpu, [orderInto(8)]);
  assert.equal(tooLarge.outputs[0]![0]!.data.byteLength, 16);
  assert.deepEqual(gpu.read(1024, 4), ROW);
});

test("a failed run with tensors of clients leaves no copy under way", async () => {
  await using opened = await openPlan();
  const faults = count().faults;
  {
    using gpu = new ClientGpu(4096);
    await withEnv({ STAND_IN_FAIL: "enqueue:1" }, async () => {
      await assert.rejects(
        run(opened, gpu, [move(opened, gpu, { offset: 16, to: 1040 })]),
        /TensorRT cannot run model 'plan'|cannot run model/,
      );
    });
    gpu.write(0, ROW);
    await run(opened, gpu, [move(opened, gpu, { offset: 0, to: 1024 })]);
    assert.deepEqual(gpu.read(1024, 4), ROW);
  }
  assert.equal(count().faults, faults);
});
