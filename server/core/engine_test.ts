import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, inferRequest } from "./engine_fixture.ts";

async function failure(work: Promise<unknown> | (() => unknown)): Promise<ServerError> {
  try {
    await (typeof work === "function" ? work() : work);
  } catch (error) {
    assert.ok(error instanceof ServerError);
    return error;
  }
  throw new assert.AssertionError({ message: "Nothing was thrown" });
}

async function codeAndText(work: Promise<unknown> | (() => unknown)): Promise<[string, string]> {
  const { code, message } = await failure(work);
  return [code, message];
}

Deno.test("Engine.infer() runs a request and answers with the version that ran", async () => {
  const fixture = new EngineFixture({ m: { versions: [1, 3] } });
  assert.equal((await fixture.start()).ok, true);
  const answer = fixture.engine.infer(inferRequest("m", { id: "7", rows: 2 }));
  await fixture.clock.advance(1);
  const response = await answer;
  assert.equal(response.modelName, "m");
  assert.equal(response.modelVersion, "3");
  assert.equal(response.id, "7");
  assert.deepEqual(response.outputs.map(({ name, shape }) => [name, shape]), [["OUT", [2, 1]]]);
  structuredClone(response);
});

Deno.test("Engine.infer() rejects before the server is ready", async () => {
  const fixture = new EngineFixture({ m: {} });
  assert.deepEqual(await codeAndText(fixture.engine.infer(inferRequest("m"))), [
    "UNAVAILABLE",
    "Server not ready",
  ]);
});

Deno.test("Engine tells apart what it does not know", async () => {
  const fixture = new EngineFixture({
    m: { versions: [1, 2] },
    broken: { loadError: () => new ServerError("INTERNAL", "no good") },
  });
  const { engine } = fixture;
  await fixture.start();
  const cases = [
    ["nope", "", "NOT_FOUND", "Request for unknown model: 'nope' is not found"],
    ["m", "7", "NOT_FOUND", "Request for unknown model: 'm' version 7 is not found"],
    [
      "m",
      "9223372036854775807",
      "NOT_FOUND",
      "Request for unknown model: 'm' version 9223372036854775807 is not found",
    ],
    ["m", "0", "NOT_FOUND", "Request for unknown model: 'm' version 0 is not found"],
    ["broken", "", "NOT_FOUND", "Request for unknown model: 'broken' has no available versions"],
    [
      "broken",
      "1",
      "UNAVAILABLE",
      "Request for unknown model: 'broken' version 1 is not at ready state",
    ],
    [
      "m",
      "-1",
      "INVALID_ARG",
      "invalid model version specified '-1' , version should be an integral value > 0",
    ],
    [
      "m",
      "two",
      "INVALID_ARG",
      "failed to get model version from specified version string 'two' (details: stol), version " +
      "should be an integral value > 0",
    ],
    [
      "m",
      "9223372036854775808",
      "INVALID_ARG",
      "failed to get model version from specified version string '9223372036854775808' (details: " +
      "stol), version should be an integral value > 0",
    ],
    [
      "m",
      "9".repeat(5_000_000),
      "INVALID_ARG",
      `failed to get model version from specified version string '${"9".repeat(100)}' (details: ` +
      "stol), version should be an integral value > 0",
    ],
    [
      "m",
      "0".repeat(1000) + "7",
      "NOT_FOUND",
      "Request for unknown model: 'm' version 7 is not found",
    ],
  ] as const;
  for (const [name, version, code, message] of cases) {
    for (
      const work of [
        () => engine.modelMetadata(name, version),
        () => engine.modelConfig(name, version),
        () => engine.isModelReady(name, version),
        () => engine.infer(inferRequest(name, { modelVersion: version })),
      ]
    ) assert.deepEqual(await codeAndText(work), [code, message]);
  }
  assert.equal(engine.isModelReady("m", "02"), true);
});

Deno.test("Engine.modelMetadata() lists tensors with the batch dimension", async () => {
  const fixture = new EngineFixture({
    batching: { versions: [1, 2, 10] },
    flat: {
      config: {
        maxBatchSize: 0,
        platform: "fake_platform",
        input: [{ name: "IN", dataType: DataType.TYPE_STRING, dims: [2n, -1n] }],
        output: [],
      },
    },
  });
  await fixture.start();
  assert.deepEqual(fixture.engine.modelMetadata("batching", ""), {
    name: "batching",
    versions: ["1", "2", "10"],
    platform: "fake",
    inputs: [{ name: "IN", datatype: "FP32", shape: [-1, -1] }],
    outputs: [{ name: "OUT", datatype: "FP32", shape: [-1, -1] }],
    maxBatchSize: 4,
    decoupled: false,
  });
  assert.deepEqual(fixture.engine.modelMetadata("batching", "2").versions, ["2"]);
  const flat = fixture.engine.modelMetadata("flat", "");
  assert.equal(flat.platform, "fake_platform");
  assert.deepEqual(flat.inputs, [{ name: "IN", datatype: "BYTES", shape: [2, -1] }]);
});

Deno.test("Engine.modelStatistics() has its own texts and gives every ready version", async () => {
  const fixture = new EngineFixture({ b: { versions: [1, 2] }, a: {} });
  const { engine } = fixture;
  await fixture.start();
  const names = (statistics: ReturnType<typeof engine.modelStatistics>) =>
    statistics.map(({ name, version }) => `${name}:${version}`);
  assert.deepEqual(names(engine.modelStatistics("", "")), ["a:1", "b:1", "b:2"]);
  assert.deepEqual(names(engine.modelStatistics("b", "")), ["b:1", "b:2"]);
  assert.deepEqual(names(engine.modelStatistics("b", "2")), ["b:2"]);
  assert.deepEqual(await codeAndText(() => engine.modelStatistics("x", "")), [
    "INVALID_ARG",
    "requested model 'x' is not available",
  ]);
  assert.deepEqual(await codeAndText(() => engine.modelStatistics("b", "3")), [
    "INVALID_ARG",
    "requested model version is not available for model 'b'",
  ]);
});

Deno.test("D9: a request for an unknown output is refused and not counted", async () => {
  const fixture = new EngineFixture({ m: {} });
  await fixture.start();
  const request = inferRequest("m", { outputs: [{ name: "NOPE", classificationCount: 0 }] });
  assert.deepEqual(await codeAndText(fixture.engine.infer(request)), [
    "INVALID_ARG",
    "unexpected inference output 'NOPE' for model 'm'",
  ]);
  assert.equal(fixture.executions.length, 0);
  assert.equal(fixture.engine.metrics().versions[0]!.received, 0);
});

Deno.test("D2: a reshaped input reaches the model in its shape, the output comes back in its dims", async () => {
  const tensor = { dataType: DataType.TYPE_FP32, dims: [1n], reshape: { shape: [] } };
  const fixture = new EngineFixture({
    m: { config: { input: [{ ...tensor, name: "IN" }], output: [{ ...tensor, name: "OUT" }] } },
  });
  await fixture.start();
  const answer = fixture.engine.infer(inferRequest("m", { rows: 4 }));
  await fixture.clock.advance(1);
  assert.deepEqual(fixture.executions[0]!.requests[0]!.id, "");
  assert.deepEqual((await answer).outputs[0]!.shape, [4, 1]);
  assert.equal((await answer).outputs[0]!.data.byteLength, 16);
});

Deno.test("Engine.infer() applies classification where it is asked for", async () => {
  const fixture = new EngineFixture({ m: {} });
  await fixture.start();
  const answer = fixture.engine.infer(inferRequest("m", {
    rows: 2,
    outputs: [{ name: "OUT", classificationCount: 3 }],
  }));
  await fixture.clock.advance(1);
  const [output] = (await answer).outputs;
  assert.equal(output!.datatype, "BYTES");
  assert.deepEqual(output!.shape, [2, 1]);
});

Deno.test("Engine.releaseResponse() releases the buffers once", async () => {
  let released = 0;
  const fixture = new EngineFixture({
    m: { outcome: () => ({ outputs: [], release: () => released++ }) },
  });
  await fixture.start();
  const answer = fixture.engine.infer(inferRequest("m"));
  await fixture.clock.advance(1);
  const response = await answer;
  assert.equal(released, 0);
  fixture.engine.releaseResponse(response);
  fixture.engine.releaseResponse(response);
  fixture.engine.releaseResponse({ ...response });
  assert.equal(released, 1);
});

Deno.test("Engine.infer() releases the buffers of a response that it cannot make", async () => {
  let released = 0;
  const text = { name: "OUT", datatype: "BYTES", shape: [1, 0], data: new Uint8Array() } as const;
  const fixture = new EngineFixture({
    m: { outcome: () => ({ outputs: [text], release: () => released++ }) },
  });
  await fixture.start();
  const answer = failure(fixture.engine.infer(
    inferRequest("m", { outputs: [{ name: "OUT", classificationCount: 1 }] }),
  ));
  await fixture.clock.advance(1);
  assert.equal((await answer).code, "INVALID_ARG");
  assert.equal(released, 1);
});

Deno.test("Engine.serverMetadata() lists the extensions in their order", () => {
  const { engine } = new EngineFixture({}, { id: "mine" });
  const { name, version, extensions } = engine.serverMetadata();
  assert.equal(name, "mine");
  assert.match(version, /^2\.\d+\.\d+$/);
  assert.equal(extensions[0], "classification");
  assert.ok(extensions.includes("statistics"));
  assert.ok(extensions.includes("json_half_precision_data(fp16,bf16)"));
});

Deno.test("Engine.infer() marks what it refuses, and nothing that a model had", async () => {
  const queuePolicy = { maxQueueSize: 1 };
  const scheduling = {
    case: "dynamicBatching" as const,
    value: { defaultQueuePolicy: queuePolicy },
  };
  const fixture = new EngineFixture({
    m: { executeMs: 5, outcome: () => ({ error: new ServerError("INTERNAL", "no luck") }) },
    full: { executeMs: 5, config: { maxBatchSize: 1, schedulingChoice: scheduling } },
  });
  await fixture.start();
  const { engine, clock } = fixture;
  const isRefusal = async (work: Promise<unknown>) => (await failure(work)).isRefusal;
  assert.equal(await isRefusal(engine.infer(inferRequest("nope"))), true);
  assert.equal(await isRefusal(engine.infer(inferRequest("m", { inputs: [] }))), true);
  const failing = isRefusal(engine.infer(inferRequest("m")));
  await clock.advance(10);
  assert.equal(await failing, false);
  const sent = ["running", "waiting", "refused"].map((id) =>
    engine.infer(inferRequest("full", { id }))
  );
  assert.equal(await isRefusal(sent[2]!), true);
  await clock.advance(20);
  await Promise.all(sent.slice(0, 2));
});

Deno.test("Engine refuses versions of any length at once", async () => {
  const fixture = new EngineFixture({ m: {} });
  await fixture.start();
  const startMs = performance.now();
  for (const version of [`${"0".repeat(300_000)}x`, `${" ".repeat(300_000)}x`]) {
    const error = await failure(() => fixture.engine.modelMetadata("m", version));
    assert.match(error.message, /^failed to get model version from specified version string /);
  }
  const { versions } = fixture.engine.modelMetadata("m", `+${"0".repeat(300_000)}1`);
  assert.deepEqual(versions, ["1"]);
  assert.ok(performance.now() - startMs < 5_000, "it takes time that grows with the square");
});

Deno.test("Engine.infer() says in the verbose log which request failed, and why", async () => {
  const fixture = new EngineFixture({
    m: { outcome: () => ({ error: new ServerError("INTERNAL", "no luck") }) },
  });
  await fixture.start();
  const { engine, clock, lines } = fixture;
  const works = [
    engine.infer(inferRequest("m", { id: "7" })),
    engine.infer(inferRequest("nope")),
  ];
  const refused = Promise.all(works.map((work) => assert.rejects(work)));
  await clock.advance(1);
  await refused;
  assert.ok(lines.includes("Polling model repository"));
  assert.ok(
    lines.includes("[request id: 7] request for 'm' version 1 failed: Internal: no luck"),
    lines.join("\n"),
  );
  assert.ok(
    lines.includes(
      "request for model 'nope' refused: Not found: Request for unknown model: 'nope' is not found",
    ),
  );
});
