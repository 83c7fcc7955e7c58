import assert from "node:assert/strict";
import { CustomMetrics } from "./custom_metrics.ts";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";
import { createModelHost } from "./model_host.ts";
import { callerOf, response, setUpHost, textOf } from "./model_host_fixture.ts";

Deno.test("ModelHost.infer() works for requests in flight while the server stops", async () => {
  const chain = (...steps: string[]): FakeModel => ({
    config: {
      backend: "",
      platform: "ensemble",
      instanceGroup: [],
      schedulingChoice: {
        case: "ensembleScheduling",
        value: {
          step: steps.map((modelName, index) => ({
            modelName,
            modelVersion: -1n,
            inputMap: { IN: index === 0 ? "IN" : `t${index}` },
            outputMap: { OUT: index === steps.length - 1 ? "OUT" : `t${index + 1}` },
          })),
        },
      },
    },
  });
  for (const callee of ["m", "batched", "sequence", "e"]) {
    const scheduling = { executeMs: 20, outcome: () => response(1) };
    const { fixture, engine, clock, call, inflight, host } = await setUpHost({
      m: scheduling,
      batched: {
        ...scheduling,
        config: { schedulingChoice: { case: "dynamicBatching", value: {} } },
      },
      sequence: {
        ...scheduling,
        config: {
          schedulingChoice: {
            case: "sequenceBatching",
            value: { iterativeSequence: true, strategyChoice: { case: "oldest", value: {} } },
          },
        },
      },
      e: chain("m", "batched"),
      outer: { ...callerOf("caller", () => host), executeMs: 50 },
      caller: { ...callerOf(callee, () => host), executeMs: 30 },
    });
    const answers: unknown[] = [];
    const answered = engine.inferStream(inferRequest("outer"), ({ response, error }) => {
      answers.push(error ?? new Float32Array(response!.outputs[0]!.data.slice().buffer)[0]);
      if (response !== undefined) engine.releaseResponse(response);
      return undefined;
    });
    await clock.advance(10);
    const stopped = engine.stop(5000);
    await clock.advance(10);
    await assert.rejects(engine.infer(inferRequest(callee)), { code: "UNAVAILABLE" });
    assert.equal(fixture.open.size > 0, true);
    await clock.advance(500);
    assert.deepEqual(answers, [201]);
    await answered;
    assert.equal(await stopped, true);
    assert.deepEqual(inflight(), []);
    assert.equal(fixture.open.size, 0);
    const late = call("m");
    await clock.advance(1);
    assert.match(late.log[0]!, /Model 'm' is not ready/);
  }
});

Deno.test("ModelHost.isModelReady() knows what serves, and refuses what cannot be", async () => {
  let isReady = false;
  const { host, engine, clock } = await setUpHost({
    m: {},
    slow: { isReady: () => Promise.resolve({ isReady }) },
  }, { modelControlMode: "explicit", loadModels: ["*"] });
  assert.equal(await host.isModelReady("m", ""), true);
  assert.equal(await host.isModelReady("m", "-1"), true);
  assert.equal(await host.isModelReady("m", "9"), false);
  assert.equal(await host.isModelReady("slow", "1"), false);
  isReady = true;
  assert.equal(await host.isModelReady("slow", "1"), true);
  await assert.rejects(host.isModelReady("ghost", ""), { code: "NOT_FOUND" });
  await assert.rejects(host.isModelReady("m", "x"), /version should be an integral value > 0/);
  await engine.unloadModel("m", { unloadDependents: false });
  assert.equal(await host.isModelReady("m", ""), false);
  const stopping = engine.stop(1000);
  await assert.rejects(host.isModelReady("m", ""), { message: "Server not ready" });
  await clock.advance(2000);
  await stopping;
});

Deno.test("ModelHost asks nothing of a server that has not started", async () => {
  const { engine, clock } = new EngineFixture({ m: { loadMs: 100 } }, {
    modelControlMode: "explicit",
    loadModels: ["m"],
  });
  const host = createModelHost(() => engine, new CustomMetrics());
  const started = engine.start();
  await clock.advance(50);
  const refusal = { code: "UNAVAILABLE", message: "Server not ready" };
  await assert.rejects(host.isModelReady("m", ""), refusal);
  await assert.rejects(host.loadModel("m", {}), refusal);
  await assert.rejects(host.unloadModel("m", { unloadDependents: false }), refusal);
  const log: string[] = [];
  await host.infer(inferRequest("m"), (message) => {
    log.push(textOf(message));
    return undefined;
  }, { decoupled: true });
  assert.equal(log.length, 1);
  await clock.advance(100);
  await started;
  await host.unloadModel("m", { unloadDependents: false });
});

Deno.test("ModelHost.loadModel() works for models that are being loaded, however many", async () => {
  const names = ["a", "b", "c", "d", "e"];
  const models: Record<string, FakeModel> = { script: {} };
  for (const name of names) {
    models[name] = { initialize: () => hostOf().loadModel(`${name}_helper`, {}) };
    models[`${name}_helper`] = { loadMs: 100 };
  }
  const { host, engine, clock } = await setUpHost(models, {
    modelControlMode: "explicit",
    loadModels: ["script"],
    modelLoadThreadCount: 2,
  });
  const hostOf = () => host;
  const loads = Promise.all(names.map((name) => engine.loadModel(name, {})));
  await clock.advance(5000);
  await loads;
  for (const name of names) assert.equal(await host.isModelReady(`${name}_helper`, ""), true);
});

Deno.test("ModelHost.loadModel() of a model that loads itself ends with an error", async () => {
  const messages: string[] = [];
  const note = (work: () => Promise<void>) => () =>
    work().catch(({ code, message }) => messages.push(`${code} ${message}`));
  const { host, engine, clock } = await setUpHost({
    script: {},
    loads: { initialize: note(() => hostOf().loadModel("loads", {})) },
    unloads: {
      initialize: note(() => hostOf().unloadModel("unloads", { unloadDependents: false })),
    },
  }, { modelControlMode: "explicit", loadModels: ["script"] });
  const hostOf = () => host;
  const loads = ["loads", "unloads"].map((name) => engine.loadModel(name, {}));
  await clock.advance(29_000);
  assert.deepEqual(messages, []);
  await clock.advance(2000);
  await Promise.all(loads);
  assert.equal(messages.length, 2);
  assert.match(
    messages[0]!,
    /^UNAVAILABLE model 'loads' cannot be loaded or unloaded now: .* 30 s/,
  );
  // What was given up does not happen later on.
  assert.equal(await host.isModelReady("unloads", ""), true);
  assert.equal(clock.timerCount, 0);
});
