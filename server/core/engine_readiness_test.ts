import assert from "node:assert/strict";
import { EngineFixture, type FakeModel } from "./engine_fixture.ts";

type Answer = Awaited<ReturnType<NonNullable<FakeModel["isReady"]>>>;

function ensembleOf(...names: string[]): FakeModel {
  const steps = names.map((modelName, index) => ({
    modelName,
    modelVersion: -1n,
    inputMap: { IN: index === 0 ? "IN" : `t${index}` },
    outputMap: { OUT: index === names.length - 1 ? "OUT" : `t${index + 1}` },
  }));
  return {
    config: {
      backend: "",
      platform: "ensemble",
      instanceGroup: [],
      schedulingChoice: { case: "ensembleScheduling", value: { step: steps } },
    },
  };
}

async function setUp(models: Record<string, FakeModel>) {
  const fixture = new EngineFixture(models);
  assert.equal((await fixture.start()).ok, true);
  const reasons = () => fixture.lines.filter((line) => line.includes("is not ready"));
  return { engine: fixture.engine, reasons };
}

Deno.test("Engine.isModelReady() answers at once when the model has no say", async () => {
  const { engine } = await setUp({ m: {}, e: ensembleOf("m", "m") });
  assert.equal(engine.isModelReady("m", ""), true);
  assert.equal(engine.isModelReady("e", "1"), true);
});

Deno.test("Engine.isModelReady() asks every instance, and says in the log why it is not ready", async () => {
  const answers: Answer[] = [{ isReady: true }, { isReady: true }];
  let asked = 0;
  const { engine, reasons } = await setUp({
    m: {
      config: { instanceGroup: [{ name: "m", count: 2 }] },
      isReady: () => Promise.resolve(answers[asked++ % 2]!),
    },
  });
  assert.equal(await engine.isModelReady("m", ""), true);
  assert.equal(asked, 2);
  answers[1] = { isReady: false, reason: "Model 'm_1' is not ready (user-defined check failed)." };
  assert.equal(await engine.isModelReady("m", "1"), false);
  assert.deepEqual(reasons(), [
    "Model 'm' version 1 is not ready: Model 'm_1' is not ready (user-defined check failed).",
  ]);
  assert.equal(engine.isReady(), true, "the server is ready nevertheless");
});

Deno.test("Engine.isModelReady() lets queries that come meanwhile share the answer", async () => {
  const gates: PromiseWithResolvers<Answer>[] = [];
  const { engine } = await setUp({
    m: {
      isReady: () => {
        gates.push(Promise.withResolvers());
        return gates.at(-1)!.promise;
      },
    },
  });
  const queries = [engine.isModelReady("m", ""), engine.isModelReady("m", "1")];
  assert.equal(gates.length, 1);
  gates[0]!.resolve({ isReady: true });
  assert.deepEqual(await Promise.all(queries), [true, true]);
  const next = engine.isModelReady("m", "");
  assert.equal(gates.length, 2, "a later one is asked anew");
  gates[1]!.reject(new Error("the process has gone"));
  assert.equal(await next, false);
});

Deno.test("Engine.isModelReady() of an ensemble asks the models it is composed of", async () => {
  let isReady = false;
  const { engine, reasons } = await setUp({
    m: {},
    slow: { isReady: () => Promise.resolve({ isReady, reason: "not yet" }) },
    e: ensembleOf("m", "slow"),
    outer: ensembleOf("e", "m"),
  });
  assert.equal(await engine.isModelReady("outer", ""), false);
  assert.deepEqual(reasons(), [
    "Model 'slow' version 1 is not ready: not yet",
    "Model 'e' version 1 is not ready: its model 'slow' is not ready",
    "Model 'outer' version 1 is not ready: its model 'e' is not ready",
  ]);
  isReady = true;
  assert.equal(await engine.isModelReady("outer", ""), true);
});
