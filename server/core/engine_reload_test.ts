import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture } from "./engine_fixture.ts";

Deno.test("Engine.loadModel() does nothing when the directory is as it was", async () => {
  const fixture = new EngineFixture({ m: { stamp: "a" } }, {
    modelControlMode: "explicit",
    loadModels: ["m"],
  });
  await fixture.start();
  const { engine, models } = fixture;
  const loads = () => fixture.lines.filter((line) => line === "loading: m:1").length;
  const load = async (parameters: Record<string, string> = {}) => {
    const loading = engine.loadModel("m", parameters);
    await fixture.clock.advance(1);
    await loading;
    return loads();
  };
  assert.equal(await load(), 1);
  models.set("m", { stamp: "b" });
  assert.equal(await load(), 2);
  assert.equal(await load({ config: "{}" }), 3);
  // The request's configuration holds until the next load, which goes back to the file.
  assert.equal(await load(), 4);
  assert.equal(await load(), 4);
  await engine.unloadModel("m", { unloadDependents: false });
  assert.equal(await load(), 5);
  const broken = { loadError: () => new ServerError("INTERNAL", "broken") };
  models.set("m", { stamp: "c", ...broken });
  const failing = assert.rejects(engine.loadModel("m", {}), /broken/);
  await fixture.clock.advance(1);
  await failing;
  models.set("m", { stamp: "c" });
  assert.equal(await load(), 7);
});
