import assert from "node:assert/strict";
import type { ExecuteRequest } from "../../backends/backend.ts";
import { type OutputTarget, placedOutput } from "../../backends/output_target.ts";
import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { findClientMemory } from "./client_memory.ts";
import { createFakeConfig, EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";
import { FakeClock } from "./fake_clock.ts";
import { FakeInstance } from "./scheduler/fake_instance.ts";
import { FakeMemory } from "./shared_memory_fixture.ts";

const GPU_ADDRESS = 0x7000n;
const SYSTEM = { kind: "system", key: "/k", offset: 0n, byteSize: 64n } as const;
const ON_HOST = { host: true, cudaDeviceId: undefined };
const ON_GPU = { host: false, cudaDeviceId: 0 };

interface Part {
  readonly region: string;
  readonly offset: number;
  readonly byteSize?: number;
}

/** A model whose one request is seen, and answered with what `answer` makes of it. */
async function setUp(
  model: FakeModel,
  answer: (request: ExecuteRequest, target: OutputTarget | undefined) => Uint8Array | undefined,
) {
  const memory = new FakeMemory();
  memory.gpuAddress = GPU_ADDRESS;
  const seen: { target: OutputTarget | undefined } = { target: undefined };
  const outcome: FakeModel["outcome"] = (request) => {
    const target = seen.target = request.targets?.get("OUT");
    const shape = [1, 1];
    const data = answer(request, target);
    if (data === undefined) {
      const tensor = { name: "OUT", datatype: "FP32", shape } as const;
      return { outputs: [placedOutput(target!, tensor, 4)] };
    }
    return { outputs: [{ name: "OUT", datatype: "FP32", shape, data }] };
  };
  const fixture = new EngineFixture(
    { m: { outcome, ...model } },
    { allowClientSharedMemory: true },
    { regionOpener: memory },
  );
  await fixture.start();
  const { engine, clock } = fixture;
  await engine.registerSystemSharedMemory({ ...SYSTEM, name: "r" });
  await engine.registerSystemSharedMemory({ ...SYSTEM, name: "same", key: "k" });
  await engine.registerSystemSharedMemory({ ...SYSTEM, name: "other", key: "/other" });
  const gpu = { kind: "cuda", byteSize: 64n } as const;
  await engine.registerCudaSharedMemory({ ...gpu, name: "g", deviceId: 0n }, new Uint8Array(64));
  await engine.registerCudaSharedMemory({ ...gpu, name: "g1", deviceId: 1n }, new Uint8Array(64));
  const infer = async (input: Part | undefined, output: Part | undefined) => {
    const running = engine.infer(requestOf(input, output));
    running.catch(() => {});
    await clock.advance(1);
    return await running;
  };
  return { memory, engine, clock, infer, seen };
}

function requestOf(input: Part | undefined, output: Part | undefined): InferRequest {
  const plain = inferRequest("m");
  return {
    ...plain,
    inputs: input === undefined ? plain.inputs : plain.inputs.map((each) => ({
      ...each,
      data: new Uint8Array(),
      sharedMemory: { byteSize: 4, ...input },
    })),
    outputs: [{
      name: "OUT",
      classificationCount: 0,
      ...(output === undefined ? {} : { sharedMemory: { byteSize: 4, ...output } }),
    }],
  };
}

function bytesOf({ outputs }: InferResponse): Uint8Array {
  return outputs[0]!.data;
}

const FOUR = new Uint8Array([1, 2, 3, 4]);

Deno.test("infer() leaves an input on the GPU of the model, and copies it once when it is looked at", async () => {
  const { memory, infer } = await setUp({ memoryUse: ON_GPU }, ({ inputs: [input] }) => {
    assert.deepEqual(input!.place, { deviceId: 0, address: GPU_ADDRESS + 8n, byteSize: 4 });
    assert.equal(memory.copyCount, 0);
    assert.deepEqual([...input!.data], [...FOUR]);
    assert.equal(input!.data, input!.data);
    assert.deepEqual([...structuredClone(input!).data], [...FOUR]);
    return input!.data;
  });
  memory.bytes("g").set(FOUR, 8);
  assert.deepEqual([...bytesOf(await infer({ region: "g", offset: 8 }, undefined))], [...FOUR]);
  assert.equal(memory.copyCount, 1);
});

Deno.test("infer() copies an input from a GPU that the model is not on", async () => {
  const { memory, infer } = await setUp({ memoryUse: ON_GPU }, ({ inputs: [input] }) => {
    assert.equal(input!.place, undefined);
    assert.equal(memory.copyCount, 1);
    return input!.data;
  });
  await infer({ region: "g1", offset: 8 }, undefined);
});

Deno.test("infer() checks the size of an input that stays on its GPU", async () => {
  const { memory, infer } = await setUp({ memoryUse: ON_GPU }, () => FOUR);
  await assert.rejects(infer({ region: "g", offset: 0, byteSize: 8 }, undefined), {
    message: "[request id: <id_unknown>] input byte size mismatch for input 'IN' for model 'm'. " +
      "Expected 4, got 8",
  });
  assert.equal(memory.copyCount, 0);
});

Deno.test("infer() names the region of an output that cannot be used any more", async () => {
  const { memory, infer } = await setUp({ memoryUse: ON_HOST }, () => FOUR);
  memory.accessFailure = new ServerError("INVALID_ARG", "it was made smaller");
  await assert.rejects(infer(undefined, { region: "r", offset: 8 }), {
    message: "Unable to use shared memory region: 'r': it was made smaller",
  });
});

Deno.test("infer() lets the model write an output into its region, in memory or on the GPU", async () => {
  for (const [region, memoryUse] of [["r", ON_HOST], ["g", ON_GPU]] as const) {
    const { memory, infer } = await setUp({ memoryUse }, (_request, target) => {
      assert.equal(target!.byteSize, 4);
      target!.bytes?.set(FOUR);
      return undefined;
    });
    const response = await infer(undefined, { region, offset: 16 });
    assert.equal(bytesOf(response).length, 0);
    assert.deepEqual(response.outputs[0]!.sharedMemory, { region, offset: 16, byteSize: 4 });
    assert.deepEqual(response.outputs[0]!.shape, [1, 1]);
    assert.equal(memory.writeCount + memory.copyCount, 0);
    if (region === "r") assert.deepEqual([...memory.bytes("r").subarray(16, 20)], [...FOUR]);
  }
});

Deno.test("infer() writes an output itself that the model has not written to its target", async () => {
  for (const [region, memoryUse] of [["r", ON_HOST], ["g", ON_GPU]] as const) {
    const { memory, infer, seen } = await setUp({ memoryUse }, () => FOUR);
    await infer(undefined, { region, offset: 16 });
    assert.notEqual(seen.target, undefined);
    assert.equal(memory.writeCount, 1);
    assert.deepEqual([...memory.bytes(region).subarray(16, 20)], [...FOUR]);
  }
});

Deno.test("infer() refuses an output that does not fit, and writes nothing", async () => {
  const { memory, infer } = await setUp({ memoryUse: ON_GPU }, () => FOUR);
  await assert.rejects(infer(undefined, { region: "g", offset: 0, byteSize: 3 }), {
    code: "INTERNAL",
    message: "shared memory size specified with the request for output 'OUT' (3 bytes) should be " +
      "at least 4 bytes to hold the results",
  });
  assert.equal(memory.writeCount, 0);
});

Deno.test("infer() offers no place that an input shares, under whatever name", async () => {
  const { infer, seen } = await setUp({ memoryUse: ON_HOST }, () => FOUR);
  const output = { region: "r", offset: 16 };
  for (
    const [input, isOffered] of [
      [{ region: "r", offset: 16 }, false],
      [{ region: "same", offset: 13 }, false],
      [{ region: "same", offset: 12 }, true],
      [{ region: "r", offset: 20 }, true],
      [{ region: "other", offset: 16 }, true],
      [undefined, true],
    ] as const
  ) {
    seen.target = undefined;
    await infer(input, output);
    assert.equal(seen.target !== undefined, isOffered, JSON.stringify(input));
  }
});

Deno.test("infer() offers a place only to models that use it and keep nothing of it", async () => {
  const models: readonly FakeModel[] = [
    {},
    { memoryUse: ON_GPU },
    { memoryUse: ON_HOST, config: { responseCache: { enable: true } } },
  ];
  for (const model of models) {
    const { infer, seen } = await setUp(model, () => FOUR);
    await infer(undefined, { region: "r", offset: 0 });
    assert.equal(seen.target, undefined);
  }
});

Deno.test("unregisterSharedMemory() leaves a target to the run that writes it", async () => {
  const { memory, engine, clock } = await setUp({ memoryUse: ON_HOST, executeMs: 50 }, (_, to) => {
    to!.bytes!.set(FOUR);
    return undefined;
  });
  const before = memory.openCount;
  const running = engine.infer(requestOf(undefined, { region: "r", offset: 0 }));
  await clock.advance(10);
  engine.unregisterSharedMemory("system", "r");
  assert.equal(memory.openCount, before);
  await clock.advance(50);
  await running;
  assert.deepEqual([...memory.bytes("r").subarray(0, 4)], [...FOUR]);
  assert.equal(memory.openCount, before - 1);
});

Deno.test("findClientMemory() leaves the states of sequences out", () => {
  const instances = [
    new FakeInstance("i", { clock: new FakeClock(), executions: [], executeMs: [0] }),
  ];
  Object.assign(instances[0]!, { memoryUse: ON_HOST });
  const state = [{ inputName: "S", outputName: "T", dataType: 11, dims: [1n] }];
  const withStates = { schedulingChoice: { case: "sequenceBatching", value: { state } } } as const;
  assert.equal(findClientMemory(createFakeConfig("m", withStates), instances), undefined);
  assert.equal(findClientMemory(createFakeConfig("m"), instances)?.host, true);
});
