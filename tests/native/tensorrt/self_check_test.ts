import assert from "node:assert/strict";
import { runSelfCheck } from "../../../backends/tensorrt/self_check_process.ts";
import { identityPlan } from "./plan.ts";
import { buildStandIns, MAJORS, whyNoStandIns } from "./stand_ins.ts";

const ignore = whyNoStandIns() !== undefined;
const standIns = ignore ? undefined : await buildStandIns();

/** Runs the check with settings of the stand-in. */
async function check(major: number, env: Record<string, string> = {}, libraryPath?: string) {
  const planPath = await Deno.makeTempFile({ prefix: "nereid_plan_" });
  await Deno.writeFile(planPath, identityPlan(major));
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  try {
    return await runSelfCheck({
      libraryPath: libraryPath ?? standIns!.tensorRt(major),
      cudaPath: standIns!.cuda,
      planPath,
      deviceId: 1,
    }, { timeoutMs: 60_000 });
  } finally {
    for (const name of Object.keys(env)) Deno.env.delete(name);
    await Deno.remove(planPath);
  }
}

for (const major of MAJORS) {
  Deno.test({
    name: `runSelfCheck() finds TensorRT ${major} good and leaves nothing behind`,
    ignore,
    async fn() {
      const report = await Deno.makeTempFile({ prefix: "nereid_report_" });
      assert.deepEqual(await check(major, { STAND_IN_REPORT: report }), { isGood: true });
      const text = await Deno.readTextFile(report);
      assert.match(text, /runtimes=0 engines=0 contexts=0/);
      assert.match(text, /memory=0 streams=0 events=0 graphs=0 faults=0/);
      await Deno.remove(report);
    },
  });
}

for (
  const { what, env, stage, reason, major = 10 } of [
    {
      what: "another major version than its methods",
      env: { STAND_IN_VERSION: "101300" },
      major: 11,
      stage: "runtime",
      reason: /Cannot create a TensorRT runtime|does not give our logger|SIGSEGV/,
    },
    {
      what: "an older version than its methods",
      env: { STAND_IN_VERSION: "8601" },
      stage: "runtime",
      reason: /getLogger\(\).*does not give our logger|SIGSEGV|slot \d+ is called/,
    },
    {
      what: "a version that nobody knows",
      env: { STAND_IN_VERSION: "7203" },
      stage: "library",
      reason: /Cannot use TensorRT 7\.2\.3 from .*: expected version 8\.6, 9, 10 or 11/,
    },
    {
      what: "8.5, whose methods are elsewhere",
      env: { STAND_IN_VERSION: "8503" },
      stage: "library",
      reason: /Cannot use TensorRT 8\.5\.3/,
    },
    {
      what: "a method outside of the library",
      env: { STAND_IN_BREAK: "slot" },
      stage: "engine",
      reason: /method getNbIOTensors \(slot 30\) of the engine is no code of it/,
    },
    {
      what: "a crash in it",
      env: { STAND_IN_CRASH: "deserialize" },
      stage: "engine",
      reason: /SIGSEGV/,
    },
    {
      what: "a device that is not there",
      env: { STAND_IN_DEVICES: "1" },
      stage: "runtime",
      reason: /cudaSetDevice failed with cudaErrorInvalidDevice \(101\) on device 1/,
    },
  ]
) {
  Deno.test({
    name: `runSelfCheck() refuses ${what}`,
    ignore,
    async fn() {
      const result = await check(major, env);
      assert.ok(!result.isGood);
      assert.equal(result.stage, stage);
      assert.match(result.reason, reason);
    },
  });
}

Deno.test({
  name: "runSelfCheck() refuses a library that lacks a symbol",
  ignore,
  async fn() {
    const result = await check(10, {}, standIns!.incomplete);
    assert.ok(!result.isGood);
    assert.equal(result.stage, "library");
    assert.match(result.reason, /createInferRuntime_INTERNAL/);
  },
});
