import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, inferRequest } from "./engine_fixture.ts";
import { DUPLICATE_MODEL_REASON } from "./model_repository.ts";

const NO_GOOD = () => new ServerError("INTERNAL", "no good");
const UNLOAD = { unloadDependents: false };

Deno.test("Engine.start() serves what loads and reports what does not", async () => {
  const fixture = new EngineFixture({
    good: { loadMs: 250 },
    broken: { loadError: NO_GOOD },
    unknown: { config: { backend: "nonesuch" } },
    unreadable: { readError: new ServerError("INVALID_ARG", "line 1: no") },
  });
  const result = await fixture.start();
  assert.equal(result.ok, false);
  assert.equal(result.error?.message, "failed to load all models");
  assert.equal(result.error?.code, "INTERNAL");
  assert.deepEqual(
    result.models.map(({ name, version, state }) => [name, version, state]),
    [
      ["broken", 1, "UNAVAILABLE"],
      ["good", 1, "READY"],
      ["unknown", 1, "UNAVAILABLE"],
      ["unreadable", undefined, "UNAVAILABLE"],
    ],
  );
  assert.equal(result.models[1]!.loadMs, 250);
  const index = await fixture.engine.repositoryIndex(false);
  assert.deepEqual(index[0], {
    name: "broken",
    version: "1",
    state: "UNAVAILABLE",
    reason: "Internal: no good",
  });
  assert.match(index[2]!.reason!, /nonesuch/);
  assert.deepEqual(index[3], { name: "unreadable", reason: "Invalid argument: line 1: no" });
  assert.equal(fixture.engine.isLive(), true);
  assert.equal(fixture.engine.isReady(), false);
  assert.deepEqual((await fixture.engine.repositoryIndex(true)).map(({ name }) => name), ["good"]);
});

Deno.test("Engine.start() logs the lines that people look for", async () => {
  const fixture = new EngineFixture({ good: { loadMs: 250 }, broken: { loadError: NO_GOOD } });
  await fixture.start();
  assert.ok(fixture.lines.includes("loading: good:1"));
  assert.ok(fixture.lines.some((line) => /^successfully loaded 'good' in 25\d ms/.test(line)));
  assert.ok(fixture.lines.includes("failed to load 'broken' version 1: Internal: no good"));
  assert.ok(fixture.lines.includes("failed to load 'broken'"));
});

Deno.test("Engine is not ready while a model of the start cannot be read", async () => {
  const readError = new ServerError("INVALID_ARG", "line 3: no");
  const fixture = new EngineFixture({ m: { readError } });
  await fixture.start();
  assert.equal(fixture.engine.isReady(), false);
});

Deno.test("Engine is ready without strict readiness although a model failed", async () => {
  const fixture = new EngineFixture({ broken: { loadError: NO_GOOD } }, { strictReadiness: false });
  assert.equal(fixture.engine.isReady(), false);
  await fixture.start();
  assert.equal(fixture.engine.isReady(), true);
});

Deno.test("Engine.start() takes a model's other versions down with a broken one", async () => {
  const fixture = new EngineFixture({
    m: { versions: [1, 2], loadError: (version) => version === 2 ? NO_GOOD() : undefined },
  });
  await fixture.start();
  assert.deepEqual(
    (await fixture.engine.repositoryIndex(false)).map(({ version, state, reason }) => [
      version,
      state,
      reason,
    ]),
    [["1", "UNAVAILABLE", "unloaded"], ["2", "UNAVAILABLE", "Internal: no good"]],
  );
  assert.equal(fixture.open.size, 0);
});

Deno.test("Engine.start() loads at most so many versions at a time", async () => {
  const model = { loadMs: 100, versions: [1, 2] };
  const fixture = new EngineFixture({ a: model, b: model, c: model }, { modelLoadThreadCount: 4 });
  const { models } = await fixture.start(1000);
  assert.ok(models.every(({ state }) => state === "READY"));
  assert.equal(fixture.mostLoading, 4);
});

Deno.test("Engine.start() tries a version again as often as it may", async () => {
  let attempts = 0;
  const loadError = () => ++attempts < 3 ? NO_GOOD() : undefined;
  const fixture = new EngineFixture({ m: { loadError } }, { modelLoadRetryCount: 2 });
  assert.equal((await fixture.start()).ok, true);
  attempts = -10;
  const other = new EngineFixture({ m: { loadError } }, { modelLoadRetryCount: 1 });
  assert.equal((await other.start()).ok, false);
});

Deno.test("Engine.start() in explicit mode loads the named models only", async () => {
  const options = { modelControlMode: "explicit", loadModels: ["b", "ghost"] } as const;
  const fixture = new EngineFixture({ a: {}, b: {} }, options);
  const result = await fixture.start();
  assert.equal(result.ok, false);
  assert.deepEqual(await fixture.engine.repositoryIndex(false), [
    { name: "a" },
    { name: "b", version: "1", state: "READY" },
  ]);
  const all = new EngineFixture({ a: {}, b: {} }, { ...options, loadModels: ["*"] });
  assert.equal((await all.start()).ok, true);
  assert.equal(all.engine.isReady(), true);
  const mixed = new EngineFixture({ a: {} }, { ...options, loadModels: ["*", "a"] });
  const { error } = await mixed.start();
  assert.equal(
    error?.message,
    "Wildcard model name '*' must be the ONLY startup model if specified at all.",
  );
  assert.equal(mixed.engine.isLive(), false);
});

Deno.test("Engine.repositoryIndex() shows a duplicate with its state", async () => {
  const readError = new ServerError("INVALID_ARG", DUPLICATE_MODEL_REASON);
  const fixture = new EngineFixture({ twice: { readError } });
  await fixture.start();
  assert.deepEqual(await fixture.engine.repositoryIndex(false), [
    { name: "twice", state: "UNAVAILABLE", reason: DUPLICATE_MODEL_REASON },
  ]);
});

Deno.test("Engine.loadModel() and unloadModel() are refused where models are loaded at start", async () => {
  const fixture = new EngineFixture({ m: {} });
  await fixture.start();
  for (const work of [fixture.engine.loadModel("m", {}), fixture.engine.unloadModel("m", UNLOAD)]) {
    await assert.rejects(work, { code: "UNAVAILABLE", message: /not allowed.*NONE/ });
  }
});

Deno.test("Engine.loadModel() and unloadModel() load, reload and unload in explicit mode", async () => {
  const fixture = new EngineFixture({ m: { executeMs: 100 } }, { modelControlMode: "explicit" });
  const { engine, clock } = fixture;
  await fixture.start();
  const loading = engine.loadModel("m", {});
  await clock.advance(1);
  await loading;
  const running = engine.infer(inferRequest("m"));
  await engine.unloadModel("m", UNLOAD);
  assert.equal((await engine.repositoryIndex(false))[0]!.state, "UNLOADING");
  await assert.rejects(engine.infer(inferRequest("m")), { code: "NOT_FOUND" });
  const reloading = engine.loadModel("m", {});
  await clock.advance(200);
  assert.equal((await running).modelVersion, "1");
  await reloading;
  assert.ok(fixture.lines.includes("successfully unloaded 'm' version 1"));
  assert.equal((await engine.repositoryIndex(false))[0]!.state, "READY");
  await engine.unloadModel("m", UNLOAD);
  await clock.settle();
  assert.deepEqual(await engine.repositoryIndex(false), [
    { name: "m", version: "1", state: "UNAVAILABLE", reason: "unloaded" },
  ]);
  assert.equal(engine.isReady(), true);
  assert.equal(fixture.open.size, 0);
  await engine.unloadModel("never heard of", UNLOAD);
});

Deno.test("Engine.loadModel() keeps the old version when the new one fails", async () => {
  let isBroken = false;
  const fixture = new EngineFixture(
    { m: { loadError: () => isBroken ? NO_GOOD() : undefined } },
    { modelControlMode: "explicit", loadModels: ["m"] },
  );
  await fixture.start();
  isBroken = true;
  const loading = fixture.engine.loadModel("m", {});
  const failed = assert.rejects(loading, {
    code: "INVALID_ARG",
    message: "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no good;\n",
  });
  await fixture.clock.advance(1);
  await failed;
  assert.equal(fixture.engine.isModelReady("m", "1"), true);
  assert.equal(fixture.engine.isReady(), true);
});

Deno.test("Engine.loadModel() replaces a version and lets its requests finish", async () => {
  const fixture = new EngineFixture(
    { m: { executeMs: 100 } },
    { modelControlMode: "explicit", loadModels: ["m"] },
  );
  await fixture.start();
  const running = fixture.engine.infer(inferRequest("m"));
  fixture.models.set("m", { versions: [2] });
  const loading = fixture.engine.loadModel("m", {});
  await fixture.clock.advance(1);
  await loading;
  assert.equal(fixture.engine.modelMetadata("m", "").versions.join(), "2");
  await fixture.clock.advance(200);
  assert.equal((await running).modelVersion, "1");
  assert.deepEqual([...fixture.open], ["m:2"]);
});

Deno.test("Engine.loadModel() brings back a version whose last requests still run", async () => {
  const fixture = new EngineFixture(
    { m: { executeMs: 100 } },
    { modelControlMode: "explicit", loadModels: ["m"] },
  );
  const { engine, clock, models } = fixture;
  await fixture.start();
  const running = engine.infer(inferRequest("m"));
  for (const versions of [[2], [1, 2]]) {
    models.set("m", { versions, loadMs: 10 });
    const loading = engine.loadModel("m", {});
    await clock.advance(20);
    await loading;
  }
  await clock.advance(200);
  await running;
  assert.equal(engine.isModelReady("m", "1"), true);
  const again = engine.infer(inferRequest("m", { modelVersion: "1" }));
  await clock.advance(100);
  assert.equal((await again).modelVersion, "1");
  assert.equal(await stopInTime(fixture), true);
  assert.equal(fixture.open.size, 0);
});

async function stopInTime({ engine, clock }: EngineFixture): Promise<boolean> {
  const stopping = engine.stop(1000);
  await clock.advance(1000);
  return await stopping;
}

Deno.test("Engine.loadModel() refuses names and files that are paths to elsewhere", async () => {
  const fixture = new EngineFixture({ m: {} }, { modelControlMode: "explicit" });
  await fixture.start();
  const { engine } = fixture;
  for (const name of ["..", "../x", "a/b", " .. ", "model/"]) {
    await assert.rejects(engine.loadModel(name, {}), { message: /path traversal characters/ });
  }
  for (const name of ["", "  "]) {
    await assert.rejects(engine.loadModel(name, {}), { message: /Model name cannot be empty/ });
  }
  for (const name of ["...", "model..1", "..my_model"]) {
    await assert.rejects(engine.loadModel(name, {}), { message: /failed to poll from model/ });
  }
  await assert.rejects(engine.loadModel("m", { "file:1/x": new Uint8Array() }), {
    code: "INTERNAL",
    message: /failed to load 'm'.*'config' must be specified/,
  });
  for (const path of ["../x", "/../x", "1/../../x", ""]) {
    await assert.rejects(
      engine.loadModel("m", { config: "{}", [`file:${path}`]: new Uint8Array() }),
      {
        code: "INVALID_ARG",
      },
    );
  }
  await assert.rejects(engine.loadModel("m", { verbose: "1" }), { code: "INVALID_ARG" });
});

Deno.test("Engine.loadModel() uses a configuration that comes with the request, once", async () => {
  const fixture = new EngineFixture({ m: {} }, { modelControlMode: "explicit" });
  await fixture.start();
  for (const parameters of [{ config: '{"max_batch_size":2}' }, {}]) {
    const loading = fixture.engine.loadModel("m", parameters);
    await fixture.clock.advance(1);
    await loading;
  }
  assert.deepEqual(fixture.overrides, ['{"max_batch_size":2}']);
});

Deno.test("Engine.loadModel() tells a model without versions as one that failed", async () => {
  const text = "at least one version must be available under the version policy of model 'm'";
  const readError = new ServerError("INVALID_ARG", text);
  const fixture = new EngineFixture({ m: { readError } }, { modelControlMode: "explicit" });
  await fixture.start();
  await assert.rejects(fixture.engine.loadModel("m", {}), {
    code: "INVALID_ARG",
    message: `load failed for model 'm': ${text}\n`,
  });
});

Deno.test("Engine knows a model of the start that has no version", async () => {
  const text = "at least one version must be available under the version policy of model 'm'";
  const fixture = new EngineFixture({ m: { readError: new ServerError("INVALID_ARG", text) } });
  await fixture.start();
  await assert.rejects(fixture.engine.infer(inferRequest("m")), {
    code: "NOT_FOUND",
    message: "Request for unknown model: 'm' has no available versions",
  });
});

Deno.test("Engine.loadModel() says what is wrong with a directory, in the usual words", async () => {
  const readError = new ServerError("INVALID_ARG", "line 3: no");
  const fixture = new EngineFixture({ m: { readError } }, { modelControlMode: "explicit" });
  await fixture.start();
  await assert.rejects(fixture.engine.loadModel("m", {}), {
    code: "INTERNAL",
    message: "failed to load 'm', failed to poll from model repository: line 3: no",
  });
  assert.deepEqual(await fixture.engine.repositoryIndex(false), [{ name: "m" }]);
  assert.equal(fixture.engine.isReady(), true, "the server was ready without it");
});

Deno.test("Engine.unloadModel() heals readiness after a failed load", async () => {
  const fixture = new EngineFixture(
    { m: { loadError: NO_GOOD } },
    { modelControlMode: "explicit", loadModels: ["m"] },
  );
  await fixture.start();
  assert.equal(fixture.engine.isReady(), false);
  await fixture.engine.unloadModel("m", UNLOAD);
  assert.equal(fixture.engine.isReady(), true);
});

Deno.test("Engine.stop() finishes what runs, refuses what comes, frees everything", async () => {
  const fixture = new EngineFixture({ m: { executeMs: 2500 } });
  const { engine, clock } = fixture;
  await fixture.start();
  const running = engine.infer(inferRequest("m"));
  const waiting = engine.infer(inferRequest("m"));
  const stopping = engine.stop(30_000);
  assert.equal(engine.isExiting(), true);
  assert.throws(() => engine.isModelReady("m", ""), { message: "Server not ready" });
  await assert.rejects(engine.infer(inferRequest("m")), { message: /Server is stopping/ });
  await clock.advance(6000);
  assert.equal(await stopping, true);
  await Promise.all([running, waiting]);
  assert.equal(fixture.open.size, 0);
  assert.equal(fixture.isBackendDisposed, true);
  assert.equal(clock.timerCount, 0);
  assert.ok(fixture.lines.includes("Waiting for in-flight requests to complete."));
  assert.ok(
    fixture.lines.includes("Timeout 30: Found 1 model versions that have in-flight inferences"),
  );
  assert.ok(fixture.lines.includes("Model 'm' (version 1) has 2 in-flight inferences"));
  assert.ok(fixture.lines.includes("All models are stopped, unloading models"));
});

Deno.test("Engine.stop() gives up when its time is over", async () => {
  const fixture = new EngineFixture({ m: { executeMs: 60_000 } });
  await fixture.start();
  const running = fixture.engine.infer(inferRequest("m"));
  const stopping = fixture.engine.stop(5000);
  await fixture.clock.advance(5000);
  assert.equal(await stopping, false);
  await fixture.clock.advance(60_000);
  await running;
});

Deno.test("Engine.stop() waits for a load that is under way", async () => {
  const fixture = new EngineFixture({ m: { loadMs: 3000 } });
  const starting = fixture.engine.start();
  await fixture.clock.advance(1000);
  const stopping = fixture.engine.stop(30_000);
  await fixture.clock.advance(10_000);
  await starting;
  assert.equal(await stopping, true);
  assert.equal(fixture.open.size, 0);
});

Deno.test("Engine.countBatchRetry() counts for the version", async () => {
  const fixture = new EngineFixture({ m: {} });
  await fixture.start();
  fixture.engine.countBatchRetry("m", 1);
  fixture.engine.countBatchRetry("m", 9);
  fixture.engine.countBatchRetry("x", 1);
  assert.equal(fixture.engine.metrics().versions[0]!.batchRetryCount, 1);
});

Deno.test("Engine.repositoryIndex() shows a directory that came after the start", async () => {
  const fixture = new EngineFixture({ a: {} });
  await fixture.start();
  fixture.models.set("b", {});
  const index = await fixture.engine.repositoryIndex(false);
  assert.deepEqual(index.map(({ name, state }) => [name, state]), [["a", "READY"], [
    "b",
    undefined,
  ]]);
});
