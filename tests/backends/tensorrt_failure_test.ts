import assert from "node:assert/strict";
import { buildPlan, identityPlan } from "../native/tensorrt/plan.ts";
import { type ConfigInit, floats, outputsOf, tensor } from "./fixture.ts";
import { count, incompleteLibrary, openPlan, ramp, test, withEnv } from "./tensorrt_fixture.ts";

test("memory for an output of unknown size grows as it is asked for", async () => {
  await withEnv({ STAND_IN_SMALL_BOUND: "1" }, async () => {
    const faults = count().faults;
    await using opened = await openPlan({
      plan: buildPlan({
        version: 10,
        inputs: [{ name: "x", type: "FLOAT", dims: [64, 64] }],
        outputs: [{ name: "y", type: "INT64", dims: [2, -1] }],
        ops: ["nonzero x y"],
      }),
    });
    const input = tensor("x", "FP32", [64, 64], new Array(4096).fill(1));
    const { outcomes } = await opened.instance.execute([opened.request([input])]);
    assert.deepEqual([...outputsOf(outcomes[0])[0]!.shape], [2, 4096]);
    assert.equal(count().faults, faults);
  });
});

test("a failure on the GPU fails its requests, with the reason, and leaves the instance usable", async () => {
  await using opened = await openPlan();
  const input = tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4]);
  const cases = {
    "enqueue:1": /TensorRT cannot run model 'm': .*enqueueV3.*illegal memory access/,
    "cudaMemcpyAsync:1": /cudaMemcpyAsync failed with cudaErrorInvalidValue \(1\) on device 0/,
    "cudaMemcpyAsync:2": /cudaMemcpyAsync failed/,
    "cudaEventRecord:1": /cudaEventRecord failed with cudaErrorLaunchFailure/,
    "cudaEventSynchronize:1": /cudaEventSynchronize failed with .*unspecified launch failure/,
    "cudaSetDevice:1": /cudaSetDevice failed with cudaErrorInvalidDevice/,
  };
  for (const [failure, message] of Object.entries(cases)) {
    await withEnv({ STAND_IN_FAIL: failure }, async () => {
      const { outcomes } = await opened.instance.execute([opened.request([input])]);
      assert.throws(() => outputsOf(outcomes[0]), { code: "INTERNAL", message });
    });
    const { outcomes } = await opened.instance.execute([opened.request([input])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 2, 3, 4]);
  }
});

test("a batch that fails is run again request by request", async () => {
  await using opened = await openPlan();
  const requests = [1, 2, 3].map((start) =>
    opened.request([tensor("INPUT0", "FP32", [1, 4], ramp(4).map((value) => value + start))])
  );
  await withEnv({ STAND_IN_FAIL: "enqueue:1,enqueue:3" }, async () => {
    const { outcomes } = await opened.instance.execute(requests);
    assert.deepEqual(outcomes.map((outcome) => "error" in outcome), [false, true, false]);
    assert.equal(opened.retryCount(), 1);
  });
});

test("a load that fails leaves nothing behind", async () => {
  const before = count();
  const config: ConfigInit = { optimization: { cuda: { graphs: true, outputCopyStream: true } } };
  const failures = [
    ...[1, 2, 3].map((number) => `cudaMalloc:${number}`),
    ...[1, 2].map((number) => `cudaStreamCreateWithPriority:${number}`),
    ...[1, 2].map((number) => `cudaEventCreateWithFlags:${number}`),
    "context:1",
    "deserialize:1",
    "runtime:1",
  ];
  for (const failure of failures) {
    await withEnv({ STAND_IN_FAIL: failure }, async () => {
      const opened = await openPlan({ config }).catch((error: Error) => error);
      if (opened instanceof Error) assert.ok(opened.message.length > 10, failure);
      else await opened[Symbol.asyncDispose]();
    });
    assert.deepEqual(count(), before, failure);
  }
});

test("no pinned memory left costs speed, not answers", async () => {
  await withEnv({ STAND_IN_FAIL: "cudaHostAlloc:*" }, async () => {
    await using opened = await openPlan();
    const input = tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4]);
    const { outcomes } = await opened.instance.execute([opened.request([input])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 2, 3, 4]);
  });
});

test("bad plans are refused with their place and the way out", async () => {
  const whole = identityPlan(10);
  const cases: [Uint8Array, RegExp][] = [
    [whole.slice(0, 60), /model\.plan': .*blobSize.*; the file is cut off or damaged/],
    [
      identityPlan(8),
      /expecting library version 10 got 8.*; build the plan again with TensorRT 10/,
    ],
    [identityPlan(10, { capability: "9.0" }), /expecting compute 8\.6 got compute 9\.0.*cc_model/],
    [new TextEncoder().encode("garbage"), /model\.plan': the file of 7 bytes is no TensorRT plan/],
    [new Uint8Array(), /the file is empty/],
    [
      new TextEncoder().encode("version https://git-lfs.github.com/spec/v1\n"),
      /pointer of Git LFS/,
    ],
  ];
  for (const selfCheck of ["false", "true"]) {
    for (const [plan, message] of cases) {
      await assert.rejects(openPlan({ plan, settings: { "self-check": selfCheck } }), {
        code: "INVALID_ARG",
        message,
      });
    }
  }
  await assert.rejects(openPlan({ files: { "best.engine": whole } }), {
    code: "UNAVAILABLE",
    message: /unable to find '.*model\.plan' for model instance 'm'.*there is 'best\.engine'/s,
  });
});

test("a library that crashes is refused before the server uses it", async () => {
  const settings = { "self-check": "true" };
  await withEnv({ STAND_IN_CRASH: "runtime" }, async () => {
    await assert.rejects(openPlan({ settings }), {
      code: "UNAVAILABLE",
      message: /TensorRT 10\.13\.0 from '.*libnvinfer\.so\.10' is refused.*SIGSEGV/s,
    });
  });
  await withEnv({ STAND_IN_CRASH: "deserialize" }, async () => {
    await assert.rejects(openPlan({ settings }), /TensorRT failed when it was tried.*SIGSEGV/s);
  });
  await assert.rejects(openPlan({ settings: { library: incompleteLibrary() } }), {
    code: "UNAVAILABLE",
    message: /createInferRuntime_INTERNAL.*libnvinfer10/s,
  });
  await using opened = await openPlan({ settings });
  assert.equal(opened.instances.length, 1);
});

test("a library that is not there is missed with the packages that bring it", async () => {
  await assert.rejects(openPlan({ settings: { library: "/no/libnvinfer.so.10" } }), {
    code: "UNAVAILABLE",
    message: /Cannot open TensorRT \(libnvinfer\); tried: setting 'library': .*libnvinfer10/s,
  });
  await assert.rejects(openPlan({ settings: { "cuda-library": "/no/libcudart.so.12" } }), {
    code: "UNAVAILABLE",
    message: /Cannot open the CUDA runtime.*nvidia-cuda-runtime-cu12/s,
  });
});

test("instances are for GPUs", async () => {
  await assert.rejects(openPlan({ placement: { kind: "KIND_CPU" } }), {
    code: "UNSUPPORTED",
    message: /instance 'm_0' of model 'm' cannot run on a CPU/,
  });
  await assert.rejects(
    openPlan({ placement: { kind: "KIND_GPU", deviceId: 5 } }),
    /cudaSetDevice failed.*on device 5/,
  );
});
