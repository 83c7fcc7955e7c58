import assert from "node:assert/strict";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";
import type { ServerOptions } from "./options.ts";

/** A model whose instances need `count` of the resource each. */
function rated(
  name: string,
  count: number,
  options: Partial<FakeModel> & { global?: boolean } = {},
) {
  const { global = false, ...rest } = options;
  const rateLimiter = { resources: [{ name: "R", count, global }], priority: 1 };
  return { config: { instanceGroup: [{ name, count: 2, rateLimiter }] }, ...rest };
}

function fixtureOf(
  models: Readonly<Record<string, FakeModel>>,
  options: Partial<ServerOptions> = {},
): EngineFixture {
  return new EngineFixture(models, {
    modelControlMode: "explicit",
    rateLimit: "execution_count",
    ...options,
  });
}

async function load(fixture: EngineFixture, name: string): Promise<string> {
  const loading = fixture.engine.loadModel(name, {}).then(
    () => "",
    (error: Error) => error.message,
  );
  await fixture.clock.advance(1);
  return await loading;
}

async function unload(fixture: EngineFixture, name: string): Promise<void> {
  const unloading = fixture.engine.unloadModel(name, { unloadDependents: false });
  await fixture.clock.advance(1);
  await unloading;
}

/** Runs so many requests at once; returns how long they took, ms. */
async function run(fixture: EngineFixture, name: string, count: number): Promise<number> {
  const { clock, engine } = fixture;
  const startMs = clock.now();
  let endMs = startMs;
  const running = Array.from(
    { length: count },
    () => engine.infer(inferRequest(name)).then(() => endMs = clock.now()),
  );
  await clock.advance(10_000);
  await Promise.all(running);
  return endMs - startMs;
}

Deno.test("Engine with rate limiter lets instances share what the largest of all models needs", async () => {
  const fixture = fixtureOf({
    small: rated("small", 1, { executeMs: 10 }),
    large: rated("large", 2, { executeMs: 10 }),
  });
  await fixture.start();
  assert.equal(await load(fixture, "small"), "");
  assert.equal(await run(fixture, "small", 4), 40);
  assert.equal(await load(fixture, "large"), "");
  assert.equal(await run(fixture, "small", 4), 20);
  assert.equal(await run(fixture, "large", 4), 40);
  await unload(fixture, "large");
  assert.equal(await run(fixture, "small", 4), 40);
});

Deno.test("Engine without rate limiter lets every instance run", async () => {
  const fixture = fixtureOf({ small: rated("small", 1, { executeMs: 10 }) }, {
    rateLimit: "off",
    rateLimitResources: [{ name: "R", count: 0 }],
  });
  await fixture.start();
  assert.equal(await load(fixture, "small"), "");
  assert.equal(await run(fixture, "small", 4), 20);
});

Deno.test("Engine refuses a model that could never run, and keeps nothing of it", async () => {
  const fixture = fixtureOf({
    large: rated("large", 3),
    fine: rated("fine", 2, { executeMs: 10 }),
    broken: rated("broken", 2, { loadError: () => new Error("broken") }),
  }, { rateLimitResources: [{ name: "R", count: 2 }] });
  await fixture.start();
  assert.match(
    await load(fixture, "large"),
    /load failed for model 'large': version 1 is at UNAVAILABLE state: Invalid argument: Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances, the minimum required count is 3/,
  );
  assert.match(await load(fixture, "broken"), /broken/);
  assert.equal(fixture.open.size, 0);
  assert.equal(await load(fixture, "fine"), "");
  assert.equal(await run(fixture, "fine", 2), 20);
});

Deno.test("Engine refuses a resource in the other sense until its last user is gone", async () => {
  const fixture = fixtureOf({
    device: rated("device", 1, { executeMs: 50 }),
    global: rated("global", 1, { global: true }),
    broken: rated("broken", 1, { loadError: () => new Error("broken") }),
  });
  await fixture.start();
  assert.match(await load(fixture, "broken"), /broken/);
  assert.equal(await load(fixture, "device"), "");
  assert.match(await load(fixture, "global"), /"R" is present as both global and device-specific/);
  const running = fixture.engine.infer(inferRequest("device"));
  await fixture.clock.advance(1);
  await unload(fixture, "device");
  assert.match(await load(fixture, "global"), /"R" is present/, "a request still runs");
  await fixture.clock.advance(100);
  await running;
  assert.equal(await load(fixture, "global"), "");
});

Deno.test("Engine loads a model anew while its last version still holds resources", async () => {
  const fixture = fixtureOf({ m: rated("m", 1, { executeMs: 50 }) });
  await fixture.start();
  assert.equal(await load(fixture, "m"), "");
  const { engine, clock } = fixture;
  const before = [engine.infer(inferRequest("m")), engine.infer(inferRequest("m"))];
  await clock.advance(1);
  fixture.models.set("m", rated("m", 2, { executeMs: 50, global: true }));
  assert.equal(await load(fixture, "m"), "");
  const after = engine.infer(inferRequest("m"));
  await clock.advance(1000);
  await Promise.all([...before, after]);
  assert.equal(fixture.executions.length, 3);
  const stopping = engine.stop(5000);
  await clock.advance(5000);
  assert.equal(await stopping, true);
  assert.equal(fixture.open.size, 0);
});
