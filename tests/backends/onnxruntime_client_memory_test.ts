/**
 * Tensors in memory of clients. There is no GPU here: memory of this machine stands for that of GPU 0, as the runtime
 * treats both by the same calls, and whoever looks at the bytes of a tensor "on the GPU" fails the test.
 */
import assert from "node:assert/strict";
import type { ExecuteRequest, ModelInstance, OutputTarget } from "../../backends/backend.ts";
import { executeRequest } from "../../backends/execute_request_fixture.ts";
import type { GpuCopies } from "../../backends/onnxruntime/gpu_batch.ts";
import { OnnxModel } from "../../backends/onnxruntime/model.ts";
import { RunPace } from "../../backends/onnxruntime/run_pace.ts";
import { createRunPlan } from "../../backends/onnx_run_plan.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import { createCallRunner } from "../../ffi/call_list.ts";
import { DeviceCalls } from "../../ffi/cuda/device_calls.ts";
import { openCudaExecution } from "../../ffi/cuda/execution_library.ts";
import { loadMachineCode } from "../../ffi/machine_code.ts";
import { addressOf } from "../../ffi/memory.ts";
import { OrtEnvironment, OrtMemory, OrtSession } from "../../ffi/onnxruntime/mod.ts";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { createDeviceTensor, type DevicePlace, type Tensor } from "../../proto/tensor.ts";
import {
  addModel,
  buildModel,
  identityModel,
  lookupModel,
  ONNX_DATA_TYPE as TYPE,
} from "../fixtures/onnx_builder.ts";
import { ClientGpu, count, cudaLibrary, reasonToSkip, withEnv } from "./tensorrt_fixture.ts";
import { checkGpuTensors, onGpu, targetAt as target } from "./gpu_tensor_suite.ts";
import { floats, type OpenedModel, openInstance, outputsOf, tensor } from "./fixture.ts";

const GPU_ALIGNMENT = 256;

/** A test that needs the stand-in for CUDA. */
function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `onnxruntime: ${name}`, ignore: reasonToSkip !== undefined, fn });
}

/** Memory of "GPU 0". */
class GpuMemory {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly #start: number;

  constructor(byteSize: number) {
    const block = new Uint8Array(byteSize + GPU_ALIGNMENT);
    this.#start = GPU_ALIGNMENT - Number(addressOf(block) % BigInt(GPU_ALIGNMENT));
    this.bytes = block.subarray(this.#start, this.#start + byteSize);
  }

  place(offset: number, byteSize: number, deviceId = 0): DevicePlace {
    return { deviceId, address: addressOf(this.bytes) + BigInt(offset), byteSize };
  }

  set(offset: number, values: readonly number[]): void {
    this.bytes.set(new Uint8Array(Float32Array.from(values).buffer), offset);
  }

  floats(offset: number, count: number): number[] {
    return [...new Float32Array(this.bytes.slice(offset, offset + 4 * count).buffer)];
  }
}

/** A model whose session is said to run on GPU 0. */
async function openOnGpu(
  model: Uint8Array<ArrayBuffer>,
  { maxBatchSize = 8, copies }: {
    readonly maxBatchSize?: number;
    readonly copies?: GpuCopies | undefined;
  } = {},
) {
  const environment = OrtEnvironment.open();
  const session = await OrtSession.open(environment, model);
  const tensors = (list: readonly { readonly name: string }[]) =>
    list.map(({ name }) => ({ name, dataType: DataType.TYPE_FP32, dims: [-1n] }));
  const config = create(ModelConfigSchema, {
    name: "m",
    maxBatchSize,
    input: tensors(session.signature.inputs),
    output: tensors(session.signature.outputs),
  });
  let retryCount = 0;
  const opened = new OnnxModel({
    name: "m",
    session,
    plan: createRunPlan(config, session.signature),
    runEntries: {},
    gate: createCallGate(4),
    pace: new RunPace(false),
    now: () => performance.now(),
    countBatchRetry: () => retryCount++,
    memory: { deviceId: 0, memory: OrtMemory.of(environment, "Cpu", 0), copies },
    trimMemory: () => Promise.resolve(),
  });
  const placement = { name: "m_0", kind: "KIND_GPU", deviceId: 0 } as const;
  const instance = await opened.createInstance(placement);
  const run = async (requests: readonly ExecuteRequest[]) => {
    const { outcomes } = await instance.execute(requests);
    return outcomes.map((outcome) => outputsOf(outcome)[0]!);
  };
  return {
    instance,
    run,
    retries: () => retryCount,
    async [Symbol.asyncDispose]() {
      await instance[Symbol.asyncDispose]();
      await opened[Symbol.asyncDispose]();
    },
  };
}

function request(
  inputs: readonly Tensor[],
  targets?: Readonly<Record<string, OutputTarget>>,
): ExecuteRequest {
  const batchSize = inputs[0]!.shape[0] ?? 1;
  const outputs = ["OUTPUT0"];
  const wanted = targets === undefined ? undefined : new Map(Object.entries(targets));
  return executeRequest({ inputs, outputs, batchSize, targets: wanted });
}

Deno.test("onnxruntime: inputs and outputs stay on the GPU of the session", async () => {
  await using opened = await openOnGpu(addModel(["batch", 2]));
  assert.deepEqual(opened.instance.memoryUse, { host: true, cudaDeviceId: 0 });
  const memory = new GpuMemory(4096);
  for (const factor of [1, 2]) {
    memory.set(0, [1 * factor, 2 * factor]);
    memory.set(256, [10, 20]);
    const [output] = await opened.run([
      request(
        [
          onGpu("INPUT0", [1, 2], memory.place(0, 8)),
          onGpu("INPUT1", [1, 2], memory.place(256, 8)),
        ],
        { OUTPUT0: target(memory.place(512, 64)) },
      ),
    ]);
    assert.deepEqual(output!.place, memory.place(512, 8));
    assert.deepEqual([...output!.shape], [1, 2]);
    assert.deepEqual(memory.floats(512, 2), [10 + factor, 20 + 2 * factor]);
  }
});

Deno.test("onnxruntime: inputs of both kinds, and outputs of either", async () => {
  await using opened = await openOnGpu(addModel(["batch", 2]));
  const memory = new GpuMemory(1024);
  memory.set(0, [1, 2]);
  const inputs = [
    onGpu("INPUT0", [1, 2], memory.place(0, 8)),
    tensor("INPUT1", "FP32", [1, 2], [5, 6]),
  ];
  const [onHost] = await opened.run([request(inputs)]);
  assert.deepEqual(floats(onHost!), [6, 8]);
  const plain = [tensor("INPUT0", "FP32", [1, 2], [1, 1]), inputs[1]!];
  await opened.run([request(plain, { OUTPUT0: target(memory.place(256, 8)) })]);
  assert.deepEqual(memory.floats(256, 2), [6, 7]);
});

Deno.test("onnxruntime: what the session cannot reach goes by way of the host", async () => {
  await using opened = await openOnGpu(identityModel([{ type: TYPE.FLOAT, dims: ["batch", 2] }]));
  const memory = new GpuMemory(1024);
  const copied = new Uint8Array(Float32Array.of(3, 4).buffer);
  // Not aligned as kernels may expect it; another GPU.
  for (const place of [memory.place(4, 8), memory.place(0, 8, 1)]) {
    const input = createDeviceTensor(
      { name: "INPUT0", datatype: "FP32", shape: [1, 2] },
      place,
      () => copied,
    );
    const [output] = await opened.run([request([input], { OUTPUT0: target(place) })]);
    assert.equal(output!.place, undefined);
    assert.deepEqual(floats(output!), [3, 4]);
  }
  // Too small: the core says so.
  const small = target(memory.place(512, 4));
  const [output] = await opened.run([
    request([tensor("INPUT0", "FP32", [1, 2], [1, 2])], { OUTPUT0: small }),
  ]);
  assert.equal(output!.place, undefined);
  assert.deepEqual(memory.floats(512, 2), [0, 0]);
});

Deno.test("onnxruntime: a batch of requests on the GPU runs one by one, without a copy", async () => {
  await using opened = await openOnGpu(identityModel([{ type: TYPE.FLOAT, dims: ["batch", 2] }]));
  const memory = new GpuMemory(4096);
  const requests = [0, 1, 2].map((k) => {
    memory.set(256 * k, [k, k + 0.5]);
    const input = onGpu("INPUT0", [1, 2], memory.place(256 * k, 8));
    return request([input], { OUTPUT0: target(memory.place(2048 + 256 * k, 8)) });
  });
  requests.push(request([tensor("INPUT0", "FP32", [1, 2], [7, 8])]));
  const outputs = await opened.run(requests);
  for (const k of [0, 1, 2]) assert.deepEqual(memory.floats(2048 + 256 * k, 2), [k, k + 0.5]);
  assert.deepEqual(floats(outputs[3]!), [7, 8]);
  assert.equal(opened.retries(), 0);
});

Deno.test("onnxruntime: a failed run on the GPU says why, and the next one works", async () => {
  await using opened = await openOnGpu(lookupModel());
  const memory = new GpuMemory(1024);
  const indices = (values: readonly number[]) => tensor("INPUT0", "INT64", [1, 2], values);
  const targets = { OUTPUT0: target(memory.place(0, 8)) };
  await assert.rejects(opened.run([request([indices([0, 9])], targets)]), /onnx runtime error/);
  await opened.run([request([indices([3, 1])], targets)]);
  assert.deepEqual(memory.floats(0, 2), [30, 10]);
});

Deno.test("onnxruntime: an output of another shape than foreseen leaves its target alone", async () => {
  const graph = {
    nodes: [{ op: "Slice", inputs: ["INPUT0", "start", "end"], outputs: ["OUTPUT0"] }],
    inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["rows"] }],
    // The same symbol promises what the operator does not keep.
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["rows"] }],
    initializers: ["start", "end"].map((name, k) => ({
      name,
      type: TYPE.INT64,
      dims: [1],
      raw: new Uint8Array(BigInt64Array.of(BigInt(k * 2)).buffer),
    })),
  };
  await using opened = await openOnGpu(buildModel(graph), { maxBatchSize: 0 });
  const memory = new GpuMemory(1024);
  memory.set(0, [1, 2, 3, 4]);
  for (let turn = 0; turn < 2; turn++) {
    const [output] = await opened.run([
      request([onGpu("INPUT0", [4], memory.place(0, 16))], {
        OUTPUT0: target(memory.place(512, 16)),
      }),
    ]);
    assert.deepEqual([[...output!.shape], floats(output!)], [[2], [1, 2]]);
    assert.equal(output!.place, undefined);
  }
});

/** Copies by the stand-in for CUDA, whose memory is that of this machine. */
async function openCopies(): Promise<GpuCopies> {
  const runner = createCallRunner(loadMachineCode());
  const cuda = await openCudaExecution(runner, { path: cudaLibrary() });
  return { device: new DeviceCalls(cuda, 0), runner };
}

/** Runs the requests, and tells how many copies went to the GPU, from it, and on it. */
async function runCounted(
  opened: Awaited<ReturnType<typeof openOnGpu>>,
  gpu: ClientGpu,
  requests: readonly ExecuteRequest[],
) {
  const before = gpu.copies();
  const outputs = await opened.run(requests);
  return { outputs, copies: gpu.copies().map((number, kind) => number - before[kind]!) };
}

test("the checks of a real GPU pass on the stand-in", async () => {
  const model = identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]);
  for (const copies of [undefined, await openCopies()]) {
    await using opened = await openOnGpu(model, { copies });
    using gpu = new ClientGpu(8192);
    await checkGpuTensors(opened.instance, gpu, { movesThere: copies !== undefined });
    assert.equal(opened.retries(), 0);
  }
});

test("a batch is joined and shared out on the GPU", async () => {
  const { cuda, faults } = count();
  {
    const copies = await openCopies();
    await using opened = await openOnGpu(addModel(["batch", 2]), { copies });
    using gpu = new ClientGpu(8192);
    for (const turn of [1, 2, 3]) {
      const requests = [1, 2, 1].map((rows, k) => {
        const values = Array.from({ length: 2 * rows }, (_, index) => turn * (k + 1) + index);
        gpu.write(512 * k, values);
        gpu.write(512 * k + 256, values);
        const inputs = ["INPUT0", "INPUT1"].map((name, index) =>
          onGpu(name, [rows, 2], gpu.place(512 * k + 256 * index, 8 * rows))
        );
        // At any place: nothing is computed there.
        return request(inputs, { OUTPUT0: target(gpu.place(4096 + 132 * k, 8 * rows)) });
      });
      const { outputs, copies: counts } = await runCounted(opened, gpu, requests);
      assert.deepEqual(counts, [0, 0, 9]);
      assert.deepEqual(outputs.map(({ shape }) => shape[0]), [1, 2, 1]);
      assert.deepEqual(gpu.read(4096, 2), [2 * turn, 2 * (turn + 1)]);
      assert.deepEqual(gpu.read(4096 + 132, 4), [0, 1, 2, 3].map((k) => 2 * (2 * turn + k)));
      assert.deepEqual(gpu.read(4096 + 264, 2), [6 * turn, 2 * (3 * turn + 1)]);
    }
    assert.equal(opened.retries(), 0);
  }
  assert.deepEqual([count().cuda, count().faults], [cuda, faults]);
});

test("a batch of requests on the GPU and others is joined there", async () => {
  await using opened = await openOnGpu(
    identityModel([{ type: TYPE.FLOAT, dims: ["batch", 2] }]),
    { copies: await openCopies() },
  );
  using gpu = new ClientGpu(4096);
  gpu.write(0, [1, 2]);
  const plain = tensor("INPUT0", "FP32", [1, 2], [3, 4]);
  const { outputs, copies } = await runCounted(opened, gpu, [
    request([onGpu("INPUT0", [1, 2], gpu.place(0, 8))], {
      OUTPUT0: target(gpu.place(1024, 8)),
    }),
    request([plain]),
    request([plain], { OUTPUT0: target(gpu.place(2048, 4)) }),
  ]);
  assert.deepEqual(copies, [2, 2, 2]);
  assert.deepEqual(gpu.read(1024, 2), [1, 2]);
  assert.deepEqual(outputs.slice(1).map(floats), [[3, 4], [3, 4]]);
  // Nobody wants it on the GPU: it comes as ever.
  const inputsOnly = await runCounted(opened, gpu, [
    request([onGpu("INPUT0", [1, 2], gpu.place(0, 8))]),
    request([plain]),
  ]);
  assert.deepEqual([inputsOnly.copies, inputsOnly.outputs.map(floats)], [
    [1, 0, 1],
    [[1, 2], [3, 4]],
  ]);
});

test("a tensor that lies where kernels cannot work on it moves on the GPU", async () => {
  const models = [["batch", 2], [2, 2]] as const;
  for (const [index, dims] of models.entries()) {
    await using opened = await openOnGpu(identityModel([{ type: TYPE.FLOAT, dims }]), {
      copies: await openCopies(),
      maxBatchSize: index === 0 ? 8 : 0,
    });
    using gpu = new ClientGpu(4096);
    gpu.write(4, [1, 2, 3, 4]);
    const { outputs, copies } = await runCounted(opened, gpu, [
      request([onGpu("INPUT0", [2, 2], gpu.place(4, 16))], {
        OUTPUT0: target(gpu.place(1028, 16)),
      }),
    ]);
    assert.deepEqual([copies, gpu.read(1028, 4)], [[0, 0, 2], [1, 2, 3, 4]]);
    assert.deepEqual([...outputs[0]!.shape], [2, 2]);
    assert.deepEqual(outputs[0]!.place, gpu.place(1028, 16));
  }
});

test("a batch that fails on the GPU runs one by one", async () => {
  await using opened = await openOnGpu(lookupModel(), { copies: await openCopies() });
  using gpu = new ClientGpu(4096);
  const order = (values: readonly number[], to: number) =>
    request([tensor("INPUT0", "INT64", [1, 2], values)], {
      OUTPUT0: target(gpu.place(to, 8)),
    });
  const { outcomes } = await opened.instance.execute([order([3, 1], 0), order([9, 9], 256)]);
  assert.equal(opened.retries(), 1);
  assert.deepEqual(gpu.read(0, 2), [30, 10]);
  assert.throws(() => outputsOf(outcomes[1]), /onnx runtime error/);
  for (const call of ["cudaMemcpyAsync:1", "cudaStreamSynchronize:1", "cudaMalloc:1"]) {
    gpu.write(0, [0, 0]);
    await withEnv({ STAND_IN_FAIL: call }, async () => {
      await opened.run([order([1, 2], 0), order([2, 3], 256)]);
    });
    assert.deepEqual([...gpu.read(0, 2), ...gpu.read(256, 2)], [10, 20, 20, 30], call);
  }
});

const LARGE = 16 * 1024;

async function runLarge(
  { instance, request }: OpenedModel & { readonly instance: ModelInstance },
  targets: ReadonlyMap<string, OutputTarget>,
): Promise<Tensor> {
  const values = Array.from({ length: LARGE }, (_, k) => k % 251);
  const input = tensor("INPUT0", "FP32", [1, LARGE], values);
  const { outcomes } = await instance.execute([request([input], { targets })]);
  const [output] = outputsOf(outcomes[0]);
  assert.deepEqual(floats(output!), values);
  return output!;
}

Deno.test("onnxruntime: a large output is written to its target in memory of this machine", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", LARGE] }]),
  });
  const region = new Uint8Array(new ArrayBuffer(5 * LARGE));
  const at = (start: number, end: number) => {
    const bytes = region.subarray(start, end);
    return new Map([["OUTPUT0", { byteSize: bytes.byteLength, bytes }]]);
  };
  // Again and again, for outputs once were kept for later runs.
  for (const start of [0, LARGE, 0]) {
    const { data } = await runLarge(opened, at(start, start + 4 * LARGE));
    assert.deepEqual([data.buffer, data.byteOffset], [region.buffer, start]);
  }
  region.fill(0);
  // Not where elements may lie; too small.
  for (const targets of [at(2, 4 * LARGE + 2), at(0, 4 * LARGE - 4)]) {
    assert.notEqual((await runLarge(opened, targets)).data.buffer, region.buffer);
  }
  assert.ok(region.every((byte) => byte === 0));
});
