import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";
import { ensembleConfig, type StepDescription } from "./ensemble/ensemble_fixture.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import type { InferResponse } from "../../proto/infer.ts";

type Step = readonly [model: string, version?: bigint];

/** An ensemble `IN` → `OUT` of models one behind the other. */
function chain(...steps: (string | Step)[]): FakeModel {
  const models = steps.map((step): Step => typeof step === "string" ? [step] : step);
  const described = models.map(([name], index): StepDescription => [
    name,
    { IN: index === 0 ? "IN" : `t${index}` },
    { OUT: index === models.length - 1 ? "OUT" : `t${index + 1}` },
  ]);
  const { schedulingChoice } = ensembleConfig(described);
  if (schedulingChoice?.case !== "ensembleScheduling") throw new TypeError();
  const tensor = (name: string) => ({ name, dataType: DataType.TYPE_FP32, dims: [-1n] });
  return {
    config: {
      backend: "",
      platform: "ensemble",
      instanceGroup: [],
      input: [tensor("IN")],
      output: [tensor("OUT")],
      schedulingChoice: {
        case: "ensembleScheduling",
        value: {
          step: described.map(([modelName, inputMap, outputMap], index) => ({
            modelName,
            modelVersion: models[index]![1] ?? -1n,
            inputMap,
            outputMap,
          })),
        },
      },
    },
  };
}

const EXPLICIT = { modelControlMode: "explicit" } as const;

async function during<Value>(fixture: EngineFixture, work: Promise<Value>): Promise<Value> {
  work.catch(() => {});
  await fixture.clock.advance(1000);
  return await work;
}

function states({ engine }: EngineFixture): Promise<string[]> {
  return engine.repositoryIndex(false).then((index) =>
    index.flatMap(({ name, state, reason }) =>
      state === undefined ? [] : [`${name} ${state}${reason === undefined ? "" : ` ${reason}`}`]
    )
  );
}

const load = (fixture: EngineFixture, name: string) =>
  during(fixture, fixture.engine.loadModel(name, {}));
const unload = (fixture: EngineFixture, name: string, unloadDependents = false) =>
  during(fixture, fixture.engine.unloadModel(name, { unloadDependents }));
const infer = (fixture: EngineFixture, name: string) =>
  during(fixture, fixture.engine.infer(inferRequest(name)));
const loads = (fixture: EngineFixture, name: string) =>
  fixture.lines.filter((line) => line === `loading: ${name}:1`).length;

Deno.test("Engine.start() loads each model once, ensembles after what they contain", async () => {
  const fixture = new EngineFixture({
    a_outer: chain("b_inner", "m"),
    b_inner: chain("m", "n"),
    m: { loadMs: 500 },
    n: {},
  });
  const { ok } = await fixture.start();
  assert.equal(ok, true);
  assert.equal(fixture.engine.isReady(), true);
  for (const name of ["a_outer", "b_inner", "m", "n"]) assert.equal(loads(fixture, name), 1, name);
  const response = await infer(fixture, "a_outer");
  assert.equal(response.modelName, "a_outer");
  assert.equal(response.outputs[0]!.name, "OUT");
  const metadata = fixture.engine.modelMetadata("a_outer", "");
  assert.deepEqual([metadata.platform, metadata.decoupled], ["ensemble", false]);
  const counts = fixture.engine.modelStatistics("", "").map(({ name, inferenceCount }) =>
    `${name} ${inferenceCount}`
  );
  assert.deepEqual(counts, ["a_outer 1", "b_inner 1", "m 2", "n 1"]);
  const stopping = fixture.engine.stop(5000);
  await fixture.clock.advance(2000);
  assert.equal(await stopping, true);
  assert.equal(fixture.open.size, 0);
});

Deno.test("Engine.start() refuses circles and ensembles of broken models, and serves the rest", async () => {
  const fixture = new EngineFixture({
    c1: chain("c2"),
    c2: chain("c3"),
    c3: chain("c1"),
    around: chain("c1"),
    broken: { loadError: () => new ServerError("INTERNAL", "no good") },
    e: chain("broken"),
    lost: chain("ghost"),
    m: {},
  });
  const { ok } = await fixture.start();
  assert.equal(ok, false);
  const told = (text: RegExp) =>
    assert.ok(fixture.lines.some((line) => text.test(line)), String(text));
  told(
    /'c1': Invalid argument: circular dependency between ensembles: c1 -> ... -> c3 -> c1; the whole circle is c1 -> c2 -> c3 -> c1/,
  );
  told(
    /'e': Invalid argument: ensemble 'e' depends on 'broken' which has no loaded version\. Model 'broken' loading failed with error: version 1 is at UNAVAILABLE state: Internal: no good;/,
  );
  told(
    /'lost': Invalid argument: ensemble lost contains models that are not available or ambiguous: ghost/,
  );
  assert.equal(loads(fixture, "broken"), 1);
  assert.deepEqual(await states(fixture), ["broken UNAVAILABLE Internal: no good", "m READY"]);
  assert.equal((await infer(fixture, "m")).modelName, "m");
});

Deno.test("Engine.loadModel() loads what an ensemble contains, and unloads it only when asked to (D31)", async () => {
  const fixture = new EngineFixture({ e: chain("a", "b"), a: {}, b: {} }, EXPLICIT);
  await fixture.start();
  await load(fixture, "e");
  assert.deepEqual(await states(fixture), ["a READY", "b READY", "e READY"]);
  await unload(fixture, "e");
  assert.deepEqual(await states(fixture), ["a READY", "b READY", "e UNAVAILABLE unloaded"]);
  await load(fixture, "e");
  assert.equal(loads(fixture, "a"), 1, "what serves is not loaded again");
  await unload(fixture, "e", true);
  assert.deepEqual(
    await states(fixture),
    ["a", "b", "e"].map((name) => `${name} UNAVAILABLE unloaded`),
  );
  assert.equal(fixture.open.size, 0);
});

Deno.test("Engine.unloadModel() keeps models of an ensemble that were asked for, or that others need", async () => {
  const models = { e: chain("a", "b", "c"), other: chain("b"), a: {}, b: {}, c: {} };
  const fixture = new EngineFixture(models, EXPLICIT);
  await fixture.start();
  for (const name of ["e", "other", "a"]) await load(fixture, name);
  await unload(fixture, "e", true);
  assert.deepEqual(await states(fixture), [
    "a READY",
    "b READY",
    "c UNAVAILABLE unloaded",
    "e UNAVAILABLE unloaded",
    "other READY",
  ]);
});

Deno.test("Engine takes an ensemble out of service with its model, and it comes back with it", async () => {
  const fixture = new EngineFixture(
    { outer: chain("e"), e: chain("a", "b"), a: {}, b: {} },
    EXPLICIT,
  );
  await fixture.start();
  await load(fixture, "outer");
  await unload(fixture, "b");
  const [a, b, e, outer] = await states(fixture);
  assert.deepEqual([a, b], ["a READY", "b UNAVAILABLE unloaded"]);
  assert.deepEqual([e, outer], ["e UNAVAILABLE unloaded", "outer UNAVAILABLE unloaded"]);
  assert.equal(fixture.engine.isReady(), true);
  await assert.rejects(infer(fixture, "e"), {
    message: "Request for unknown model: 'e' has no available versions",
  });
  await load(fixture, "b");
  assert.deepEqual(await states(fixture), ["a READY", "b READY", "e READY", "outer READY"]);
  assert.equal((await infer(fixture, "outer")).modelName, "outer");
});

Deno.test("Engine binds ensembles to a model that was loaded anew; running requests end on the old one", async () => {
  const fixture = new EngineFixture(
    { e: chain("a", "b"), a: { executeMs: 5000 }, b: {} },
    EXPLICIT,
  );
  await fixture.start();
  await load(fixture, "e");
  const running = fixture.engine.infer(inferRequest("e", { id: "old" }));
  await fixture.clock.advance(10);
  const data = new Uint8Array(Float32Array.of(2).buffer);
  fixture.models.set("b", {
    outcome: ({ inputs }) => ({ outputs: [{ ...inputs[0]!, name: "OUT", data }] }),
  });
  await load(fixture, "b");
  assert.equal(loads(fixture, "b"), 2);
  assert.equal(loads(fixture, "e"), 2);
  const renewed = fixture.engine.infer(inferRequest("e", { id: "new" }));
  await fixture.clock.advance(20_000);
  const first = ({ outputs }: InferResponse) =>
    new Float32Array(outputs[0]!.data.slice().buffer)[0];
  assert.deepEqual([first(await running), first(await renewed)], [1, 2]);
  const stopping = fixture.engine.stop(5000);
  await fixture.clock.advance(6000);
  assert.equal(await stopping, true);
});

Deno.test("Engine.loadModel() of a model that does not fit any more takes the ensemble out of service", async () => {
  const fixture = new EngineFixture({ e: chain("a"), a: {} }, EXPLICIT);
  await fixture.start();
  await load(fixture, "e");
  fixture.models.set("a", {
    config: { input: [{ name: "OTHER", dataType: DataType.TYPE_FP32, dims: [-1n] }] },
  });
  await load(fixture, "a");
  const [a, e] = await states(fixture);
  assert.equal(a, "a READY");
  assert.match(
    e!,
    /^e UNAVAILABLE Invalid argument: in ensemble e, .*non-existing input IN in model a/,
  );
});

Deno.test("Engine.loadModel() tells all that is wrong with an ensemble and leaves no trace of it", async () => {
  const fixture = new EngineFixture({ e: chain("a", "gost", ["b", 7n]), a: {}, b: {} }, EXPLICIT);
  await fixture.start();
  await assert.rejects(load(fixture, "e"), (error: ServerError) => {
    assert.equal(error.code, "INVALID_ARG");
    assert.match(error.message, /^load failed for model 'e': ensemble e contains models .*: gost/);
    assert.match(error.message, /depends on 'b' whose required version 7 is not loaded\./);
    return true;
  });
  assert.deepEqual(await states(fixture), ["a READY", "b READY"]);
  assert.equal(fixture.engine.isReady(), true);
});

Deno.test("Engine loads and unloads models of an ensemble in any order at once", async () => {
  const fixture = new EngineFixture({
    outer: chain("e", "a"),
    e: chain("a", "b"),
    a: { loadMs: 3, executeMs: 2 },
    b: { loadMs: 1 },
  }, EXPLICIT);
  await fixture.start();
  const { engine, clock } = fixture;
  const names = ["outer", "e", "a", "b"];
  for (let round = 0; round < 60; round++) {
    const work: Promise<unknown>[] = [];
    for (let index = 0; index < 5; index++) {
      const name = names[(round * 7 + index * 3) % 4]!;
      const unloadDependents = (round + index) % 2 === 0;
      work.push(
        (round + index) % 3 === 0
          ? engine.unloadModel(name, { unloadDependents })
          : engine.loadModel(name, {}),
        engine.infer(inferRequest("outer")),
      );
    }
    const settled = Promise.allSettled(work);
    await clock.advance(100);
    await settled;
  }
  for (const name of names) await load(fixture, name);
  assert.deepEqual(await states(fixture), ["a READY", "b READY", "e READY", "outer READY"]);
  assert.equal((await infer(fixture, "outer")).modelName, "outer");
  for (const { inflight } of engine.metrics().versions) assert.equal(inflight, 0);
  const stopping = engine.stop(5000);
  await clock.advance(6000);
  assert.equal(await stopping, true);
  assert.equal(fixture.open.size, 0);
});
