import assert from "node:assert/strict";
import { CallList } from "../../../ffi/call_list.ts";
import { DeviceCalls } from "../../../ffi/cuda/device_calls.ts";
import { openCudaExecution } from "../../../ffi/cuda/execution_library.ts";
import { addressOf } from "../../../ffi/memory.ts";
import { openTensorRt } from "../../../ffi/tensorrt/library.ts";
import { OutputAllocator } from "../../../ffi/tensorrt/output_allocator.ts";
import { TensorRtRuntime } from "../../../ffi/tensorrt/runtime.ts";
import { buildPlan, identityPlan } from "./plan.ts";
import { buildStandIns, countStandIns, MAJORS, whyNoStandIns } from "./stand_ins.ts";

const ignore = whyNoStandIns() !== undefined;
const standIns = ignore ? undefined : await buildStandIns();

async function openRuntime(major: number, deviceId = 0) {
  const library = openTensorRt({ path: standIns!.tensorRt(major) });
  const cuda = await openCudaExecution(library.runner, { path: standIns!.cuda });
  const device = new DeviceCalls(cuda, deviceId);
  return { library, device, runtime: await TensorRtRuntime.create(library, device) };
}

for (const major of MAJORS) {
  Deno.test({
    name: `TensorRT ${major}: an engine tells of itself, computes, and leaves nothing behind`,
    ignore,
    async fn() {
      const before = countStandIns(standIns!, major);
      const { library, device, runtime } = await openRuntime(major, 1);
      assert.equal(library.version.major, major);
      const engine = await runtime.deserialize(identityPlan(major));
      assert.equal(engine.signature.profileCount, 1);
      assert.deepEqual(
        engine.signature.tensors.map(({ name, isInput, type, dims, isOnHost }) => ({
          name,
          isInput,
          type,
          dims,
          isOnHost,
        })),
        [
          { name: "INPUT0", isInput: true, type: 0, dims: [-1, 4], isOnHost: false },
          { name: "OUTPUT0", isInput: false, type: 0, dims: [-1, 4], isOnHost: false },
        ],
      );
      assert.deepEqual(engine.signature.tensors[0]!.profiles, [
        { min: [1, 4], opt: [8, 4], max: [8, 4] },
      ]);
      const context = await runtime.createContext(engine, { name: "instance" });
      const stream = await device.createStream("max");
      const event = await device.createEvent({ busyWait: false });
      const [source, target] = [await device.allocate(32), await device.allocate(32)];
      const { addresses } = device.cuda;
      assert.equal(context.setInputShape("INPUT0", [9, 4]), false);
      assert.match(library.logger.since(0).at(-1)!.text, /does not satisfy profile 0/);
      assert.equal(context.inferShapes(), 1);
      assert.equal(context.setInputShape("INPUT0", [2, 4]), true);
      assert.equal(context.inferShapes(), 0);
      assert.deepEqual(context.shapeOf("OUTPUT0"), [2, 4]);
      assert.ok(context.setInputAddress("INPUT0", source.address));
      assert.ok(context.setOutputAddress("OUTPUT0", target.address));
      const input = Float32Array.from([1, 2, 3, 4, 5, 6, 7, 8]);
      const output = new Float32Array(new ArrayBuffer(32));
      const list = new CallList();
      list.keep(input);
      list.keep(output);
      device.begin(list);
      const copy = (to: bigint, from: bigint, kind: bigint) =>
        list.add("cudaMemcpyAsync", addresses.cudaMemcpyAsync, {
          args: [to, from, 32n, kind, stream.address],
        });
      copy(source.address, addressOf(input), 1n);
      context.addEnqueue(list, stream.address);
      copy(addressOf(output), target.address, 2n);
      device.add(list, "cudaEventRecord", [event.address, stream.address]);
      device.add(list, "cudaEventSynchronize", [event.address]);
      await device.run(list);
      assert.deepEqual([...output], [...input]);
      await runtime.delete([context.object, engine.object]);
      await device.destroy([stream, event, source, target]);
      await runtime[Symbol.asyncDispose]();
      assert.deepEqual(countStandIns(standIns!, major), before);
    },
  });

  Deno.test({
    name: `TensorRT ${major}: OutputAllocator gives its block to other threads and tells the shape`,
    ignore,
    async fn() {
      const { library, device, runtime } = await openRuntime(major);
      const type = major >= 10 ? "INT64" : "INT32";
      const engine = await runtime.deserialize(buildPlan({
        version: major,
        inputs: [{ name: "x", type: "FLOAT", dims: [2, 3] }],
        outputs: [{ name: "y", type, dims: [2, -1] }],
        ops: ["nonzero x y"],
      }));
      const context = await runtime.createContext(engine, { name: "instance" });
      const allocator = new OutputAllocator(library.code, library.table);
      assert.ok(context.setOutputAllocator("y", allocator.address));
      const size = major >= 10 ? 8 : 4;
      assert.equal(context.maxOutputByteSize("y"), 2 * 6 * size);
      const stream = await device.createStream();
      const [source, target] = [await device.allocate(24), await device.allocate(2 * size)];
      const input = Float32Array.from([0, 1, 0, 0, 0, 5]);
      context.setInputAddress("x", source.address);
      const run = async () => {
        allocator.reset();
        const list = new CallList();
        list.keep(input);
        device.begin(list);
        device.add(list, "cudaMemcpyAsync", [
          source.address,
          addressOf(input),
          24n,
          1n,
          stream.address,
        ]);
        context.addEnqueue(list, stream.address);
        device.add(list, "cudaStreamSynchronize", [stream.address]);
        return await list.run(library.runner);
      };
      allocator.setBlock(target.address, 2 * size);
      assert.equal((await run())?.name, "enqueueV3");
      assert.equal(allocator.neededByteSize, 4 * size);
      assert.equal(allocator.shape, undefined);
      const larger = await device.allocate(4 * size);
      allocator.setBlock(larger.address, 4 * size);
      assert.equal(await run(), undefined);
      assert.deepEqual(allocator.shape, [2, 2]);
      await runtime.delete([context.object, engine.object]);
      await device.destroy([stream, source, target, larger]);
      await runtime[Symbol.asyncDispose]();
    },
  });

  Deno.test({
    name: `TensorRT ${major}: a broken or foreign plan is refused with the library's reason`,
    ignore,
    async fn() {
      const { runtime } = await openRuntime(major);
      const whole = identityPlan(major);
      const cases = [
        [whole.slice(0, whole.length - 9), /header.size == blobSize/],
        [new TextEncoder().encode("garbage"), /Magic tag does not match/],
        [identityPlan(7), new RegExp(`expecting library version ${major} got 7`)],
        [identityPlan(major, { capability: "9.0" }), /expecting compute 8.6 got compute 9.0/],
      ] as const;
      for (const [plan, message] of cases) {
        await assert.rejects(runtime.deserialize(plan), { name: "TensorRtError", message });
      }
      await runtime[Symbol.asyncDispose]();
    },
  });
}

Deno.test({
  name: "DeviceCalls tell which call failed, with CUDA's words",
  ignore,
  async fn() {
    const library = openTensorRt({ path: standIns!.tensorRt(10) });
    const cuda = await openCudaExecution(library.runner, { path: standIns!.cuda });
    const device = new DeviceCalls(cuda, 1);
    assert.equal(await device.computeCapability(), "8.6");
    Deno.env.set("STAND_IN_FAIL", "cudaMalloc:1");
    try {
      await assert.rejects(device.allocate(100), {
        name: "CudaError",
        message: "cudaMalloc failed with cudaErrorMemoryAllocation (2) on device 1: out of memory",
      });
    } finally {
      Deno.env.delete("STAND_IN_FAIL");
    }
    await assert.rejects(new DeviceCalls(cuda, 7).createStream(), /cudaSetDevice.*invalid device/);
  },
});
