import assert from "node:assert/strict";
import { ServerError } from "../../../proto/status.ts";
import { byteTensor, ensembleConfig, EnsembleFixture } from "./ensemble_fixture.ts";

const CHAIN = ensembleConfig([["a", { IN: "X" }, { OUT: "m" }], ["b", { IN: "m" }, { OUT: "Y" }]]);
const BROKEN = () => new ServerError("NOT_FOUND", "it broke");

function assertClean({ scheduler, models, clock, gates }: EnsembleFixture): void {
  assert.equal(scheduler.inflightCount, 0);
  for (const [name, model] of models) {
    assert.equal(model.unreleasedCount, 0, `responses of ${name} that were not released`);
    assert.deepEqual(model.faults, []);
    assert.equal(model.inflightCount, 0);
  }
  for (const gate of gates) assert.deepEqual([gate.inflightCount, gate.waitingCount], [0, 0]);
  assert.equal(clock.timerCount, 0);
}

Deno.test("EnsembleScheduler runs steps one after the other without a copy", async () => {
  const fixture = new EnsembleFixture(CHAIN, { a: {}, b: {} });
  const input = byteTensor("X", 7);
  const sent = fixture.send({}, { inputs: [input] });
  await fixture.clock.advance(10);
  assert.equal(sent.doneCount, 1);
  const { response, atMs } = sent.answers[0]!;
  assert.equal(atMs, 2);
  assert.ok(response !== undefined && "outputs" in response);
  assert.equal(response.outputs[0]!.data, input.data, "the same bytes all the way");
  assert.equal(response.outputs[0]!.name, "Y");
  assertClean(fixture);
});

Deno.test("EnsembleScheduler runs independent steps side by side and joins them", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "left" }],
    ["b", { IN: "X" }, { OUT: "right" }],
    ["join", { L: "left", R: "right" }, { OUT: "Y" }],
  ]);
  const sum = {
    inputs: ["L", "R"],
    compute: (
      { inputs }: { inputs: readonly { data: Uint8Array }[] },
    ) => [byteTensor("OUT", inputs[0]!.data[0]! + inputs[1]!.data[0]!)],
  };
  const fixture = new EnsembleFixture(config, { a: { delayMs: 5 }, b: { delayMs: 8 }, join: sum });
  const sent = fixture.send({ X: 4 });
  await fixture.clock.advance(20);
  assert.deepEqual(sent.bytes, { Y: 8 });
  assert.equal(sent.answers[0]!.atMs, 9);
  assert.deepEqual([fixture.model("a").startsMs, fixture.model("b").startsMs], [[0], [0]]);
  const { durationsUs } = fixture.statistics.snapshot();
  assert.deepEqual([durationsUs.request, durationsUs.compute_infer], [9000, 14_000]);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler leaves out steps that no requested output needs", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "m" }],
    ["b", { IN: "m" }, { OUT: "Y" }],
    ["c", { IN: "m" }, { OUT: "Z" }],
  ], { outputs: ["Y", "Z"] });
  const fixture = new EnsembleFixture(config, { a: {}, b: {}, c: {} });
  const sent = fixture.send({ X: 1 }, { outputs: ["Z"] });
  await fixture.clock.advance(10);
  assert.deepEqual(sent.bytes, { Z: 1 });
  assert.deepEqual(
    ["a", "b", "c"].map((name) => fixture.model(name).requests.length),
    [1, 0, 1],
  );
  assertClean(fixture);
});

Deno.test("EnsembleScheduler leaves out inputs that were not given, and outputs that did not come", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X", MORE: "W" }, { OUT: "Y", REST: "Z" }],
  ], { inputs: ["X", "W"], outputs: ["Y", "Z"] });
  const fixture = new EnsembleFixture(config, {
    a: {
      inputs: ["IN", "MORE"],
      outputs: ["OUT", "REST"],
      compute: () => [byteTensor("OUT", 5)],
    },
  });
  const sent = fixture.send({ X: 1 }, { outputs: ["Y", "Z"] });
  await fixture.clock.advance(10);
  assert.deepEqual(fixture.model("a").requests[0]!.inputs.map(({ name }) => name), ["IN"]);
  assert.deepEqual(sent.bytes, { Y: 5 });
  assert.deepEqual(fixture.absentOutputs, ["Z"]);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler hands the properties of the request to the steps", async () => {
  const fixture = new EnsembleFixture(CHAIN, {
    a: { parameters: { sequence_id: "inner", sequence_end: true } },
    b: {},
  });
  const sent = fixture.send({ X: 1 }, {
    id: "r",
    correlationId: 9n,
    sequenceStart: true,
    priority: 2,
    timeoutUs: 5_000_000,
    parameters: { colour: "red" },
  });
  await fixture.clock.advance(10);
  const properties = (name: string) => {
    const { id, correlationId, sequenceStart, sequenceEnd, priority, timeoutUs, parameters } =
      fixture.model(name).requests[0]!;
    return [id, correlationId, sequenceStart, sequenceEnd, priority, timeoutUs, parameters];
  };
  assert.deepEqual(properties("a"), ["r", 9n, true, false, 2, 5_000_000, { colour: "red" }]);
  assert.deepEqual(properties("b"), ["r", "inner", true, true, 2, 5_000_000, { colour: "red" }]);
  const { response } = sent.answers[0]!;
  assert.ok(response !== undefined && "outputs" in response);
  assert.deepEqual(response.parameters, {
    sequence_id: "inner",
    sequence_start: true,
    sequence_end: true,
  });
  assertClean(fixture);
});

Deno.test("EnsembleScheduler adds and takes away the batch dimension between models", async () => {
  const steps = [["a", { IN: "X" }, { OUT: "m" }], ["b", { IN: "m" }, { OUT: "Y" }]] as const;
  for (const [first, second] of [[0, 8], [8, 0]] as const) {
    const fixture = new EnsembleFixture(ensembleConfig(steps), {
      a: { maxBatchSize: first },
      b: { maxBatchSize: second },
    });
    const sent = fixture.send({ X: 3 });
    await fixture.clock.advance(10);
    const shape = (name: string) => fixture.model(name).requests[0]!.inputs[0]!.shape;
    assert.deepEqual(shape("a"), first > 0 ? [1, 1] : [1]);
    assert.deepEqual(shape("b"), second > 0 ? [1, 1] : [1]);
    const { response } = sent.answers[0]!;
    assert.ok(response !== undefined && "outputs" in response);
    assert.deepEqual(response.outputs[0]!.shape, [1]);
  }
});

Deno.test("EnsembleScheduler fails once, with ensemble and step, after all steps have ended", async () => {
  const config = ensembleConfig([
    ["slow", { IN: "X" }, { OUT: "l" }],
    ["bad", { IN: "X" }, { OUT: "r" }],
    ["join", { L: "l", R: "r" }, { OUT: "Y" }],
  ]);
  for (const refuses of [false, true]) {
    const fixture = new EnsembleFixture(config, {
      slow: { delayMs: 50 },
      bad: { failure: BROKEN, refuses },
      join: { inputs: ["L", "R"] },
    });
    const sent = fixture.send({ X: 1 });
    await fixture.clock.advance(100);
    assert.equal(sent.doneCount, 1);
    assert.equal(sent.answers.length, 1);
    assert.equal(sent.error?.code, "NOT_FOUND");
    assert.equal(sent.error?.message, "in ensemble 'e', it broke (step 1, model 'bad')");
    assert.equal(fixture.model("slow").abortedCount, 1, "what runs is told to stop");
    assert.equal(fixture.model("join").requests.length, 0);
    const { failures, received, pending } = fixture.statistics.snapshot();
    assert.deepEqual([failures.OTHER, received, pending], [1, 1, 0]);
    assertClean(fixture);
  }
});

Deno.test("EnsembleScheduler lets a cancel reach the steps at once", async () => {
  const fixture = new EnsembleFixture(CHAIN, { a: { delayMs: 1000 }, b: {} });
  const controller = new AbortController();
  const sent = fixture.send({ X: 1 }, { signal: controller.signal });
  await fixture.clock.advance(10);
  controller.abort();
  await fixture.clock.settle();
  assert.equal(sent.error?.code, "CANCELLED");
  assert.equal(sent.answers[0]!.atMs, 10);
  assert.equal(fixture.model("a").abortedCount, 1);
  assert.equal(fixture.model("b").requests.length, 0);
  assert.equal(fixture.statistics.snapshot().failures.CANCELED, 1);
  const gone = fixture.send({ X: 1 }, { signal: controller.signal });
  assert.equal(gone.error?.code, "CANCELLED");
  assertClean(fixture);
});

Deno.test("EnsembleScheduler says when no step can be made any more", async () => {
  const fixture = new EnsembleFixture(CHAIN, { a: {}, b: {} });
  // A model that breaks its promise of one response.
  fixture.model("a").inferStream = () => Promise.resolve();
  const sent = fixture.send({ X: 1 }, { id: "r" });
  await fixture.clock.advance(10);
  assert.equal(sent.error?.code, "INVALID_ARG");
  assert.equal(
    sent.error?.message,
    "in ensemble 'e', [request id: r] unexpected deadlock, at least one output is not set while " +
      "no more ensemble steps can be made",
  );
  assertClean(fixture);
});

Deno.test("EnsembleScheduler answers once per response of a decoupled step, then with the final flag", async () => {
  const fixture = new EnsembleFixture(CHAIN, {
    a: { responseCount: 3, compute: (_request, index) => [byteTensor("OUT", index)] },
    b: { delayMs: 2 },
  });
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(20);
  assert.equal(sent.doneCount, 1);
  assert.deepEqual(
    sent.answers.map(({ atMs, isFinal }) => [atMs, isFinal]),
    [[3, false], [4, false], [5, true]],
  );
  assert.deepEqual(sent.bytes, { Y: 2 });
  const { success, executionCount } = fixture.statistics.snapshot();
  assert.deepEqual([success, executionCount], [1, 1]);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler ends a decoupled request without responses", async () => {
  const fixture = new EnsembleFixture(CHAIN, { a: { responseCount: 0 }, b: {} });
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(20);
  assert.deepEqual(sent.answers.map(({ response, isFinal }) => [response, isFinal]), [[
    undefined,
    true,
  ]]);
  assert.equal(sent.doneCount, 1);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler holds a decoupled step back while max_inflight_requests run (D34)", async () => {
  const config = ensembleConfig(
    [["a", { IN: "X" }, { OUT: "m" }], ["b", { IN: "m" }, { OUT: "Y" }]],
    { maxInflightRequests: 4 },
  );
  const fixture = new EnsembleFixture(config, {
    a: { responseCount: 1000, compute: (_request, index) => [byteTensor("OUT", index % 250)] },
    b: { delayMs: 10 },
  });
  const controller = new AbortController();
  const sent = fixture.send({ X: 1 }, { signal: controller.signal });
  await fixture.clock.advance(40);
  assert.equal(fixture.model("b").mostInflight, 4);
  assert.ok(
    fixture.model("a").responseCount - sent.answers.length <= 5,
    "no more than 4, and one in hand",
  );
  assert.deepEqual(
    sent.answers.map(({ response }) =>
      response !== undefined && "outputs" in response ? response.outputs[0]!.name : ""
    ).filter((name) => name !== "Y"),
    [],
  );
  controller.abort();
  await fixture.clock.settle();
  assert.equal(fixture.model("a").abortedCount, 1, "the source stops at once");
  assert.equal(sent.doneCount, 1);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler holds a decoupled step back through steps between", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "m" }],
    ["b", { IN: "m" }, { OUT: "n" }],
    ["c", { IN: "n" }, { OUT: "Y" }],
  ], { maxInflightRequests: 2 });
  const fixture = new EnsembleFixture(config, {
    a: { responseCount: 50, compute: (_request, index) => [byteTensor("OUT", index)] },
    b: {},
    c: { delayMs: 20 },
  });
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(200);
  assert.ok(fixture.model("a").responseCount - sent.answers.length <= 6);
  await fixture.clock.advance(2000);
  assert.equal(sent.answers.length, 50);
  assert.deepEqual([sent.bytes, sent.doneCount], [{ Y: 49 }, 1]);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler lets a start go ahead that waited for 300 s", async () => {
  const config = ensembleConfig([["a", { IN: "X" }, { OUT: "Y" }]], { maxInflightRequests: 1 });
  const fixture = new EnsembleFixture(config, { a: { delayMs: 400_000 } });
  const sent = [fixture.send({ X: 1 }), fixture.send({ X: 2 })];
  await fixture.clock.advance(299_000);
  assert.deepEqual([fixture.model("a").mostInflight, fixture.timeoutCount], [1, 0]);
  await fixture.clock.advance(2000);
  assert.deepEqual([fixture.model("a").mostInflight, fixture.timeoutCount], [2, 1]);
  await fixture.clock.advance(500_000);
  assert.deepEqual(sent.map(({ doneCount }) => doneCount), [1, 1]);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler asks the source to wait for a slow client", async () => {
  const fixture = new EnsembleFixture(ensembleConfig([["a", { IN: "X" }, { OUT: "Y" }]]), {
    a: { responseCount: 5 },
  });
  const client = Promise.withResolvers<void>();
  fixture.clientHold = client.promise;
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(100);
  assert.equal(sent.answers.length, 1);
  fixture.clientHold = undefined;
  client.resolve();
  await fixture.clock.advance(100);
  assert.equal(sent.answers.length, 6);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler keeps the inputs of a step while an answer may be a view of them", async () => {
  const fixture = new EnsembleFixture(CHAIN, {
    a: { compute: () => [byteTensor("OUT", 9)] },
    b: {},
  });
  fixture.releasesAnswers = false;
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(10);
  const { response } = sent.answers[0]!;
  assert.ok(response !== undefined && "outputs" in response);
  assert.equal(response.outputs[0]!.data[0], 9);
  assert.equal(fixture.model("a").unreleasedCount, 1);
  response.release?.();
  assert.equal(fixture.model("a").unreleasedCount, 0);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler.stop() finishes what runs, refuses what comes, lets go of the models", async () => {
  const fixture = new EnsembleFixture(CHAIN, { a: {}, b: {} });
  const sent = fixture.send({ X: 1 });
  const stopping = fixture.scheduler.stop();
  assert.throws(() => fixture.send({ X: 1 }), { code: "UNAVAILABLE" });
  assert.equal(fixture.isReleased, false);
  await fixture.clock.advance(10);
  await stopping;
  assert.deepEqual([fixture.isReleased, sent.doneCount, sent.error], [true, 1, undefined]);
});
