import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";
import { DUPLICATE_MODEL_REASON } from "./model_repository.ts";

const POLL = { modelControlMode: "poll", repositoryPollSecs: 1 } as const;
const BAD = new ServerError("INVALID_ARG", "line 3: no");

async function start(models: Record<string, FakeModel>): Promise<EngineFixture> {
  const fixture = new EngineFixture(models, POLL);
  await fixture.start(10);
  return fixture;
}

async function rows(fixture: EngineFixture): Promise<string[]> {
  const index = await fixture.engine.repositoryIndex(false);
  return index.map(({ name, version, state, reason }) =>
    [name, version, state, reason].filter((each) => each !== undefined).join(" ")
  );
}

async function stop(fixture: EngineFixture): Promise<void> {
  const stopping = fixture.engine.stop(1000);
  await fixture.clock.advance(10_000);
  assert.equal(await stopping, true);
  assert.equal(fixture.clock.timerCount, 0);
  assert.equal(fixture.instances.size, 0);
}

Deno.test("Engine in poll mode serves what comes, and no more what goes", async () => {
  const fixture = await start({ a: {} });
  fixture.models.set("b", {});
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["a 1 READY", "b 1 READY"]);
  fixture.models.delete("a");
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["b 1 READY"]);
  assert.equal(fixture.engine.isReady(), true);
  assert.throws(() => fixture.engine.isModelReady("a", ""), /'a' has no available versions/);
  fixture.models.set("a", { versions: [1, 2] });
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["a 1 READY", "a 2 READY", "b 1 READY"]);
  await assert.rejects(fixture.engine.loadModel("a", {}), /not allowed if polling is enabled/);
  await stop(fixture);
});

Deno.test("Engine in poll mode answers requests in flight on what is replaced", async () => {
  const fixture = await start({ a: { executeMs: 5000, stamp: "1" } });
  const answer = fixture.engine.infer(inferRequest("a"));
  fixture.models.set("a", { stamp: "2" });
  await fixture.clock.advance(2000);
  const other = fixture.engine.infer(inferRequest("a"));
  await fixture.clock.advance(10);
  await other;
  await fixture.clock.advance(5000);
  await answer;
  assert.equal(fixture.lines.filter((line) => line === "loading: a:1").length, 2);
  await stop(fixture);
});

Deno.test("Engine in poll mode lists a model that it cannot read with the reason, as long as that is so", async () => {
  const fixture = await start({ a: {} });
  const reason = "b Internal: failed to read the model directory: Permission denied";
  const unreadable = { unreadable: "Permission denied" };
  fixture.models.set("b", unreadable);
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["a 1 READY", reason]);
  assert.equal(fixture.engine.isReady(), true);
  fixture.models.delete("b");
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["a 1 READY"]);
  fixture.models.set("a", unreadable).set("b", unreadable);
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["a 1 READY", reason]);
  fixture.models.set("b", {});
  await fixture.clock.advance(2000);
  assert.deepEqual(await rows(fixture), ["a 1 READY", "b 1 READY"]);
  await stop(fixture);
});

Deno.test("Engine in poll mode keeps a model whose change is bad (scenario D32)", async () => {
  const fixture = await start({ a: { stamp: "1" } });
  fixture.models.set("a", { stamp: "2", readError: BAD });
  fixture.models.set("bad", { stamp: "1", readError: BAD });
  fixture.models.set("good", { stamp: "1" });
  await fixture.clock.advance(3000);
  assert.deepEqual(await rows(fixture), [
    "a 1 READY",
    "bad Invalid argument: line 3: no",
    "good 1 READY",
  ]);
  assert.equal(fixture.engine.isReady(), true);
  fixture.models.set("a", { stamp: "3" });
  fixture.models.set("bad", { stamp: "2" });
  await fixture.clock.advance(3000);
  assert.deepEqual(await rows(fixture), ["a 1 READY", "bad 1 READY", "good 1 READY"]);
  assert.equal(fixture.engine.isReady(), true);
  await stop(fixture);
});

Deno.test("Engine in poll mode serves neither of two models of one name", async () => {
  const fixture = await start({ a: { stamp: "1" } });
  const readError = new ServerError("INVALID_ARG", DUPLICATE_MODEL_REASON);
  fixture.models.set("a", { stamp: "twice", readError, repositories: ["/models", "/more"] });
  await fixture.clock.advance(3000);
  assert.deepEqual(await rows(fixture), [`a UNAVAILABLE ${DUPLICATE_MODEL_REASON}`]);
  assert.equal(fixture.engine.isReady(), true);
  fixture.models.set("a", { stamp: "1" });
  await fixture.clock.advance(3000);
  assert.deepEqual(await rows(fixture), ["a 1 READY"]);
  await stop(fixture);
});

Deno.test("Engine in poll mode keeps serving when the repository vanishes", async () => {
  const fixture = await start({ a: { stamp: "1" } });
  fixture.models.clear();
  fixture.lost.set("/models", "No such file or directory");
  await fixture.clock.advance(5000);
  assert.deepEqual(await rows(fixture), ["a 1 READY"]);
  await stop(fixture);
});

Deno.test("Engine in poll mode forgets models that are gone for long", async () => {
  const fixture = await start({});
  for (let index = 0; index < 1100; index++) fixture.models.set(`m${index}`, {});
  await fixture.clock.advance(3000);
  assert.equal((await rows(fixture)).length, 1100);
  fixture.models.clear();
  fixture.models.set("last", {});
  await fixture.clock.advance(3000);
  fixture.models.clear();
  await fixture.clock.advance(3000);
  assert.deepEqual(await rows(fixture), []);
  assert.throws(() => fixture.engine.isModelReady("m0", ""), /is not found/);
  assert.throws(() => fixture.engine.isModelReady("m1099", ""), /has no available versions/);
  await stop(fixture);
});
