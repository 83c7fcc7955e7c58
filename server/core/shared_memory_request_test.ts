import assert from "node:assert/strict";
import type { InferRequest, InferResponse, SharedMemoryReference } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, inferRequest } from "./engine_fixture.ts";
import type { ResponseReceiver } from "./inference_api.ts";
import { FakeMemory } from "./shared_memory_fixture.ts";

const HANDLE = new Uint8Array(64);

function at(offset: number, byteSize: number, region = "r"): SharedMemoryReference {
  return { region, offset, byteSize };
}

async function setUpEngine(model: ConstructorParameters<typeof EngineFixture>[0][string] = {}) {
  const memory = new FakeMemory();
  const fixture = new EngineFixture({ m: model }, {
    allowClientSharedMemory: true,
  }, { regionOpener: memory });
  await fixture.start();
  const { engine } = fixture;
  await engine.registerSystemSharedMemory({
    kind: "system",
    name: "r",
    key: "/k",
    offset: 0n,
    byteSize: 64n,
  });
  const { clock } = fixture;
  const infer = async (request: InferRequest): Promise<InferResponse> => {
    const running = engine.infer(request);
    running.catch(() => {});
    await clock.advance(1);
    return await running;
  };
  const inferStream = async (request: InferRequest, receive: ResponseReceiver): Promise<void> => {
    const running = engine.inferStream(request, receive);
    await clock.advance(1);
    await running;
  };
  return { memory, fixture, engine, infer, inferStream };
}

function request(
  input: SharedMemoryReference | undefined,
  output?: SharedMemoryReference,
  rows = 1,
): InferRequest {
  const plain = inferRequest("m", { rows });
  return {
    ...plain,
    inputs: input === undefined ? plain.inputs : plain.inputs.map((each) => ({
      ...each,
      data: new Uint8Array(),
      sharedMemory: input,
    })),
    outputs: [{
      name: "OUT",
      classificationCount: 0,
      ...(output === undefined ? {} : { sharedMemory: output }),
    }],
  };
}

Deno.test("infer() reads an input in place, and answers with a copy of what lies there", async () => {
  const { memory, fixture, infer } = await setUpEngine();
  memory.floats("r")[3] = 7.5;
  const response = await infer(request(at(12, 4)));
  const { data } = response.outputs[0]!;
  assert.equal(new Float32Array(data.slice().buffer)[0], 7.5);
  assert.notEqual(data.buffer, memory.bytes("r").buffer, "no view outlives the request");
  const seen = fixture.executions[0]!.requests[0]!.inputs;
  assert.equal(seen.length, 0, "inputs are dropped when the request is over");
  assert.equal(memory.copyCount, 0);
});

Deno.test("infer() writes an output into its region", async () => {
  const { memory, infer } = await setUpEngine();
  const response = await infer(request(undefined, at(16, 8)));
  assert.equal(memory.floats("r")[4], 1);
  assert.deepEqual(response.outputs, [{
    name: "OUT",
    datatype: "FP32",
    shape: [1, 1],
    data: new Uint8Array(),
    sharedMemory: at(16, 8),
  }]);
});

Deno.test("infer() checks regions and the parts of them", async () => {
  const { infer } = await setUpEngine();
  const cases: [SharedMemoryReference, string, string][] = [
    [at(0, 4, "x"), "NOT_FOUND", "Unable to find shared memory region: 'x'"],
    [at(64, 4), "INVALID_ARG", "Invalid offset for shared memory region: 'r'"],
    [at(2 ** 53 - 1, 4), "INVALID_ARG", "Invalid offset for shared memory region: 'r'"],
    [at(61, 4), "INVALID_ARG", "Invalid offset + byte size for shared memory region: 'r'"],
    [
      at(1, 2 ** 53 - 1),
      "INVALID_ARG",
      "Integer overflow detected: byte_size (9007199254740991) + offset (1) exceeds maximum value " +
      "(9007199254740991) for region 'r'",
    ],
    [at(1, 2 ** 53 - 2), "INVALID_ARG", "Invalid offset + byte size for shared memory region: 'r'"],
  ];
  for (const [place, code, message] of cases) {
    await assert.rejects(infer(request(place)), { code, message });
    await assert.rejects(infer(request(undefined, place)), { code, message });
  }
  await assert.rejects(infer(request(at(0, 8))), /Expected 4, got 8$/);
  await assert.rejects(infer(request(undefined, at(0, 3))), {
    code: "INTERNAL",
    message: "shared memory size specified with the request for output 'OUT' (3 bytes) should be " +
      "at least 4 bytes to hold the results",
  });
});

Deno.test("infer() names the region when its memory has become smaller", async () => {
  const { memory, infer } = await setUpEngine();
  memory.accessFailure = new ServerError("INVALID_ARG", "it has 0 bytes");
  const expected = {
    code: "INVALID_ARG",
    message: "Unable to use shared memory region: 'r': it has 0 bytes",
  };
  await assert.rejects(infer(request(at(0, 4))), expected);
  await assert.rejects(infer(request(undefined, at(0, 4))), expected);
});

Deno.test("infer() fails when an input was cut while the model read it", async () => {
  const { memory, infer } = await setUpEngine();
  memory.damage = new ServerError("INVALID_ARG", "it was cut");
  await assert.rejects(infer(request(at(0, 4))), {
    code: "INVALID_ARG",
    message: "Unable to use shared memory region: 'r': it was cut",
  });
});

Deno.test("unregisterSharedMemory() leaves the memory to the requests that use it", async () => {
  const { memory, fixture, engine } = await setUpEngine({ executeMs: 500 });
  const running = engine.infer(request(at(0, 4), at(32, 4)));
  await fixture.clock.advance(10);
  engine.unregisterSharedMemory("system", "r");
  engine.unregisterSharedMemory("system", "");
  assert.equal(memory.openCount, 1);
  assert.equal(engine.sharedMemoryStatus("system", "r").length, 1, "it is still there");
  const second = engine.infer(request(at(0, 4)));
  const bytes = memory.floats("r");
  bytes[0] = 3;
  await fixture.clock.advance(500);
  await running;
  assert.equal(bytes[8], 3, "the output was written");
  assert.equal(memory.openCount, 1, "a later request uses it");
  await fixture.clock.advance(500);
  await second;
  assert.equal(memory.openCount, 0, "the last request lets go of it");
  assert.deepEqual(engine.sharedMemoryStatus("system", ""), []);
  await assert.rejects(engine.infer(request(at(0, 4))), {
    code: "NOT_FOUND",
    message: "Unable to find shared memory region: 'r'",
  });
});

Deno.test("registerSystemSharedMemory() may take the name of a region that waits for its end", async () => {
  const { memory, fixture, engine, infer } = await setUpEngine({ executeMs: 500 });
  const running = engine.infer(request(at(0, 4)));
  await fixture.clock.advance(10);
  engine.unregisterSharedMemory("system", "r");
  const again = { kind: "system", name: "r", key: "/other", offset: 0n, byteSize: 64n } as const;
  await engine.registerSystemSharedMemory(again);
  assert.equal(memory.openCount, 2);
  await fixture.clock.advance(500);
  await running;
  assert.equal(memory.openCount, 1);
  assert.deepEqual(engine.sharedMemoryStatus("system", ""), [again]);
  engine.unregisterSharedMemory("system", "r");
  assert.equal(memory.openCount, 0);
  await assert.rejects(infer(request(at(0, 4))), /Unable to find shared memory region/);
});

Deno.test("infer() lets go of regions when the request is refused or fails", async () => {
  const { memory, engine, infer } = await setUpEngine({
    outcome: () => ({ error: new ServerError("INTERNAL", "no") }),
  });
  await assert.rejects(infer(request(at(0, 4))), /no/);
  await assert.rejects(infer(request(at(0, 8))), /Expected/);
  await assert.rejects(infer(request(at(0, 4), at(0, 4, "x"))), /Unable to find/);
  await assert.rejects(infer({ ...request(at(0, 4)), modelName: "x" }), /unknown model/);
  engine.unregisterSharedMemory("system", "r");
  assert.equal(memory.openCount, 0);
});

Deno.test("infer() frees the buffers behind outputs that went into regions", async () => {
  let releaseCount = 0;
  const { engine, infer } = await setUpEngine({
    outcome: ({ outputs }) => ({
      outputs: outputs.map((name) => ({
        name,
        datatype: "FP32",
        shape: [1, 1],
        data: new Uint8Array(4),
      })),
      release: () => void releaseCount++,
    }),
  });
  await infer(request(undefined, at(0, 4)));
  assert.equal(releaseCount, 1, "at once");
  await assert.rejects(infer(request(undefined, at(0, 2))));
  assert.equal(releaseCount, 2, "after a failure");
  const response = await infer(request(at(0, 4)));
  assert.equal(releaseCount, 2, "not while the response is being sent");
  engine.releaseResponse(response);
  assert.equal(releaseCount, 3);
});

Deno.test("inferStream() reads and writes regions, and holds them until its end", async () => {
  const { memory, engine, inferStream } = await setUpEngine();
  memory.floats("r")[0] = 5;
  const messages: unknown[] = [];
  await inferStream(request(at(0, 4), at(8, 4)), (message) => {
    messages.push(message);
    assert.equal(memory.openCount, 1);
    engine.unregisterSharedMemory("system", "r");
    assert.equal(memory.openCount, 1);
    return undefined;
  });
  assert.equal(messages.length, 1);
  assert.equal(memory.openCount, 0);
});

Deno.test("inferStream() tells of an output that does not fit as a response", async () => {
  const { inferStream } = await setUpEngine();
  const errors: (string | undefined)[] = [];
  await inferStream(request(undefined, at(8, 3)), ({ error, isFinal }) => {
    errors.push(isFinal ? error?.message : "not final");
    return undefined;
  });
  assert.match(errors[0]!, /\(3 bytes\) should be at least 4 bytes/);
});

Deno.test("infer() copies BYTES, whose lengths must not change under way", async () => {
  const { memory, infer } = await setUpEngine({
    config: { input: [{ name: "IN", dataType: 13, dims: [-1n] }] },
  });
  memory.bytes("r").set([1, 0, 0, 0, 65]);
  const plain = request(at(0, 5));
  const text: InferRequest = {
    ...plain,
    inputs: plain.inputs.map((input) => ({ ...input, datatype: "BYTES" })),
  };
  const response = await infer(text);
  assert.deepEqual([...response.outputs[0]!.data], [1, 0, 0, 0, 65]);
  assert.equal(memory.copyCount, 1);
});

Deno.test("infer() checks the size before it copies device memory", async () => {
  const { memory, engine, infer } = await setUpEngine();
  const region = { kind: "cuda", name: "g", deviceId: 0n, byteSize: 64n } as const;
  await engine.registerCudaSharedMemory(region, HANDLE);
  await assert.rejects(infer(request(at(0, 64, "g"))), {
    code: "INVALID_ARG",
    message: "[request id: <id_unknown>] input byte size mismatch for input 'IN' for model 'm'. " +
      "Expected 4, got 64",
  });
  assert.equal(memory.copyCount, 0);
  memory.floats("g")[2] = 9;
  const response = await infer(request(at(8, 4, "g"), at(12, 4, "g")));
  assert.equal(response.outputs[0]!.data.length, 0);
  assert.equal(memory.floats("g")[3], 9);
  assert.equal(memory.copyCount, 1);
});
