import assert from "node:assert/strict";
import { DataType, ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";

const { CPU, GPU } = ModelInstanceGroup_Kind;
const EXPLICIT = { modelControlMode: "explicit", loadModels: ["m"] } as const;

function model(count: number, change: Partial<FakeModel> = {}): FakeModel {
  const config = { instanceGroup: [{ name: "g", count, kind: CPU }] };
  return { config, stamp: String(count), files: { 1: "a" }, executeMs: 10, ...change };
}

async function load(fixture: EngineFixture, next: FakeModel): Promise<void> {
  fixture.models.set("m", next);
  const loading = fixture.engine.loadModel("m", {});
  const watched = loading.catch(() => {});
  await fixture.clock.advance(1);
  await watched;
  return await loading;
}

const names = ({ instances }: EngineFixture) =>
  [...instances].map(({ placement }) => placement.name).sort();

const loads = (fixture: EngineFixture) =>
  fixture.lines.filter((line) => line.startsWith("loading: "));

Deno.test("Engine.loadModel() adds and removes instances without loading a version anew", async () => {
  const fixture = new EngineFixture({ m: model(1) }, EXPLICIT);
  await fixture.start(100);
  const { engine, instances } = fixture;
  const infer = () => engine.infer(inferRequest("m"));
  const first = infer();
  await load(fixture, model(3));
  assert.deepEqual(names(fixture), ["g_0", "g_1", "g_2"]);
  assert.deepEqual(loads(fixture), ["loading: m:1"]);
  assert.equal(engine.modelConfig("m", "").instanceGroup[0]!.count, 3);
  const more = [infer(), infer(), infer()];
  fixture.models.set("m", model(1));
  const loading = engine.loadModel("m", {});
  await fixture.clock.advance(1);
  assert.equal(engine.modelConfig("m", "").instanceGroup[0]!.count, 1);
  await fixture.clock.advance(100);
  await Promise.all([loading, first, ...more]);
  assert.equal(instances.size, 1);
  assert.equal(Number(engine.modelStatistics("m", "")[0]!.inferenceCount), 4);
  assert.ok(fixture.lines.includes("updating: m:1 (instances added: 2, removed: 0)"));
  await engine.unloadModel("m", { unloadDependents: false });
  await fixture.clock.advance(1);
  assert.equal(instances.size, 0);
});

Deno.test("Engine.loadModel() keeps all instances when one of the new ones fails", async () => {
  const fixture = new EngineFixture({ m: model(1) }, EXPLICIT);
  await fixture.start(100);
  const instanceError = (name: string) =>
    name === "g_2" ? new ServerError("INTERNAL", "no memory") : undefined;
  await assert.rejects(load(fixture, model(4, { instanceError })), /no memory/);
  assert.deepEqual(names(fixture), ["g_0"]);
  assert.equal(fixture.engine.modelConfig("m", "").instanceGroup[0]!.count, 1);
  const answer = fixture.engine.infer(inferRequest("m"));
  await fixture.clock.advance(20);
  await answer;
  await load(fixture, model(4));
  assert.equal(fixture.instances.size, 4);
});

Deno.test("Engine.loadModel() replaces instances of groups that differ in more than their number", async () => {
  const fixture = new EngineFixture({ m: model(2) }, EXPLICIT);
  await fixture.start(100);
  const instanceGroup = [{ name: "h", count: 1, kind: CPU, rateLimiter: { priority: 2 } }];
  await load(fixture, model(2, { config: { instanceGroup }, stamp: "other" }));
  await fixture.clock.advance(1);
  assert.deepEqual(names(fixture), ["h_0"]);
  assert.deepEqual(loads(fixture), ["loading: m:1"]);
});

Deno.test("Engine.loadModel() answers when the instances that it removed have ended", async () => {
  const slow = (count: number) => model(count, { executeMs: 5000 });
  const fixture = new EngineFixture({ m: slow(2) }, EXPLICIT);
  await fixture.start(100);
  const { engine, clock, instances } = fixture;
  const answers = [engine.infer(inferRequest("m")), engine.infer(inferRequest("m"))];
  fixture.models.set("m", slow(1));
  let isAnswered = false;
  const loading = engine.loadModel("m", {}).then(() => isAnswered = true);
  await clock.advance(4000);
  assert.deepEqual([isAnswered, instances.size], [false, 2]);
  assert.equal(engine.modelConfig("m", "").instanceGroup[0]!.count, 1);
  await clock.advance(1001);
  await loading;
  await Promise.all(answers);
  assert.equal(instances.size, 1);
});

Deno.test("Engine.loadModel() does not wait for an instance that hangs, and others need not wait for it", async () => {
  const hanging = (count: number) => model(count, { executeMs: 1e9 });
  const fixture = new EngineFixture({ m: hanging(2) }, EXPLICIT);
  await fixture.start(100);
  const { engine, clock, instances } = fixture;
  void engine.infer(inferRequest("m"));
  void engine.infer(inferRequest("m"));
  fixture.models.set("m", hanging(1));
  let isAnswered = false;
  const loading = engine.loadModel("m", {}).then(() => isAnswered = true);
  await clock.advance(29_000);
  await load(fixture, hanging(3));
  assert.deepEqual([isAnswered, instances.size], [false, 4]);
  await clock.advance(1001);
  await loading;
  const late = fixture.lines.filter((line) => /still runs what it had begun/.test(line));
  assert.equal(late.length, 1);
});

Deno.test("Engine.loadModel() does not wait when a model asks, which may be the one that runs", async () => {
  const slow = (count: number) => model(count, { executeMs: 5000 });
  const fixture = new EngineFixture({ m: slow(2) }, EXPLICIT);
  await fixture.start(100);
  const { engine, clock, instances } = fixture;
  const answers = [engine.infer(inferRequest("m")), engine.infer(inferRequest("m"))];
  fixture.models.set("m", slow(1));
  const loading = engine.loadModel("m", {}, { isCall: true });
  await clock.advance(1);
  await loading;
  assert.equal(instances.size, 2);
  await clock.advance(5000);
  await Promise.all(answers);
  assert.equal(instances.size, 1);
});

Deno.test("Engine.loadModel() warms up further instances before they serve", async () => {
  const IN = { dataType: DataType.TYPE_FP32, dims: [1n] };
  const inputDataType = { case: "zeroData", value: true } as const;
  const modelWarmup = [{ name: "w", batchSize: 1, inputs: { IN: { ...IN, inputDataType } } }];
  const warm = (count: number) =>
    model(count, {
      executeMs: 0,
      config: { instanceGroup: [{ name: "g", count, kind: CPU }], modelWarmup },
    });
  const fixture = new EngineFixture({ m: warm(1) }, EXPLICIT);
  await fixture.start(100);
  await load(fixture, warm(3));
  assert.deepEqual(fixture.executions.map(({ instance }) => instance), ["g_0", "g_1", "g_2"]);
});

Deno.test("Engine.loadModel() loads anew what differs in its files or its configuration", async () => {
  const fixture = new EngineFixture({ m: model(1) }, EXPLICIT);
  await fixture.start(100);
  await load(fixture, model(1, { stamp: "files", files: { 1: "b" } }));
  assert.equal(loads(fixture).length, 2);
  await load(
    fixture,
    model(1, { stamp: "config", files: { 1: "b" }, config: { maxBatchSize: 8 } }),
  );
  assert.equal(loads(fixture).length, 3);
  const unloads = fixture.lines.filter((line) => line === "successfully unloaded 'm' version 1");
  assert.equal(unloads.length, 2, "what was replaced is told when it is gone");
});

Deno.test("Engine.loadModel() keeps versions that stay, loads new ones and retires those not chosen", async () => {
  const two = model(1, { versions: [1, 2], files: { 1: "a", 2: "a" } });
  const fixture = new EngineFixture({ m: two }, EXPLICIT);
  await fixture.start(100);
  const three = { versions: [2, 3], files: { 1: "a", 2: "a", 3: "a" }, stamp: "three" };
  await load(fixture, model(1, three));
  assert.deepEqual(loads(fixture), ["loading: m:1", "loading: m:2", "loading: m:3"]);
  assert.deepEqual([...fixture.open].sort(), ["m:2", "m:3"]);
  const versions = fixture.engine.modelMetadata("m", "").versions;
  assert.deepEqual(versions, ["2", "3"]);
});

Deno.test("Engine finds versions by their labels", async () => {
  const versionLabels = new Map([["stable", 1], ["canary", 2]]);
  const labelled = model(1, { versions: [1, 2], versionLabels });
  const fixture = new EngineFixture({ m: labelled, plain: {} }, { modelControlMode: "none" });
  await fixture.start(100);
  const { engine } = fixture;
  for (const [label, version] of [["stable", "1"], ["canary", "2"], ["latest", "2"]] as const) {
    assert.deepEqual(engine.modelMetadata("m", label).versions, [version]);
    assert.equal(engine.modelStatistics("m", label)[0]!.version, version);
    assert.equal(engine.isModelReady("m", label), true);
    assert.equal(engine.versionOfLabel("m", label), version);
    const answer = engine.infer(inferRequest("m", { modelVersion: label }));
    await fixture.clock.advance(20);
    assert.equal((await answer).modelVersion, version);
  }
  assert.deepEqual(engine.modelMetadata("m", "2").versions, ["2"]);
  assert.throws(() => engine.modelMetadata("m", "other"), {
    message:
      "Request for unknown model: 'm' has no version label 'other', its labels are stable, " +
      "canary, latest",
  });
  assert.throws(() => engine.modelMetadata("plain", "latest"), /\(details: stol\)/);
  assert.equal(engine.versionOfLabel("plain", "latest"), undefined);
  assert.equal(engine.versionOfLabel("ghost", "latest"), undefined);
});

Deno.test("Engine is ready while a further model is being loaded, and not when that failed", async () => {
  const loadError = () => new ServerError("INTERNAL", "no");
  const fixture = new EngineFixture(
    { m: model(1), n: { loadMs: 5000 }, bad: { loadError } },
    EXPLICIT,
  );
  await fixture.start(100);
  const { engine, clock } = fixture;
  const loading = engine.loadModel("n", {});
  await clock.advance(1000);
  assert.equal(engine.isReady(), true);
  assert.throws(() => engine.isModelReady("n", "1"), /not at ready state/);
  await clock.advance(5000);
  await loading;
  await engine.unloadModel("n", { unloadDependents: false });
  await clock.advance(1);
  assert.equal(engine.isReady(), true);
  const failing = assert.rejects(engine.loadModel("bad", {}), /no/);
  await clock.advance(1);
  await failing;
  assert.equal(engine.isReady(), false);
});

Deno.test("Engine.loadModel() tells and counts groups that fall back while the version serves", async () => {
  const backendConfig = new Map([["fake", new Map([["fallback", "true"]])]]);
  const fixture = new EngineFixture({ m: model(1) }, { ...EXPLICIT, backendConfig });
  await fixture.start(100);
  const count = () => fixture.engine.metrics().versions[0]!.kindFallbackCount;
  assert.equal(count(), 0);
  const instanceGroup = [{ name: "h", count: 1, kind: GPU }];
  await load(fixture, model(1, { config: { instanceGroup }, stamp: "gpu" }));
  assert.deepEqual(loads(fixture), ["loading: m:1"]);
  const line = "instance group h of model m has kind KIND_GPU and falls back to CPU: ";
  assert.ok(fixture.lines.some((each) => each.startsWith(line)), fixture.lines.join("\n"));
  assert.equal(fixture.engine.modelConfig("m", "").instanceGroup[0]!.kind, CPU);
  assert.equal(count(), 1);
  await load(fixture, model(2));
  assert.equal(count(), 0);
});

Deno.test("Engine.loadModel() replaces a version with an instance that has given up", async () => {
  const fixture = new EngineFixture({ m: model(1) }, EXPLICIT);
  await fixture.start(100);
  await load(fixture, model(1));
  assert.deepEqual(loads(fixture), ["loading: m:1"]);
  const [dead] = fixture.instances;
  Object.assign(dead!, { hasGivenUp: true });
  await load(fixture, model(1));
  await fixture.clock.advance(1);
  assert.deepEqual(loads(fixture), ["loading: m:1", "loading: m:1"]);
  assert.deepEqual([fixture.instances.size, fixture.instances.has(dead!)], [1, false]);
});
