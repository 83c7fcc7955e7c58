import assert from "node:assert/strict";
import { byteTensor, ensembleConfig, EnsembleFixture } from "./ensemble_fixture.ts";

const CHAIN = ensembleConfig([["a", { IN: "X" }, { OUT: "m" }], ["b", { IN: "m" }, { OUT: "Y" }]]);

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

Deno.test("EnsembleScheduler holds a decoupled step back while the steps behind it are far behind", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "m" }],
    ["b", { IN: "m" }, { OUT: "n" }],
    ["c", { IN: "n" }, { OUT: "Y" }],
  ]);
  const fixture = new EnsembleFixture(config, {
    a: { responseCount: 5000, delayMs: 0 },
    b: { delayMs: 0 },
    c: { delayMs: 1_000 },
  });
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(900);
  assert.equal(fixture.model("c").mostInflight, 1024);
  assert.equal(fixture.model("a").responseCount, 1024);
  await fixture.clock.advance(20_000);
  assert.deepEqual([sent.answers.length, sent.doneCount], [5000, 1]);
  assert.equal(fixture.model("c").mostInflight, 1024);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler lets decoupled steps behind each other go on however far the last is behind", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "m" }],
    ["b", { IN: "m" }, { OUT: "n" }],
    ["c", { IN: "n" }, { OUT: "Y" }],
  ]);
  const fixture = new EnsembleFixture(config, {
    a: { responseCount: 3000, delayMs: 0 },
    b: { responseCount: 2, delayMs: 0 },
    c: { delayMs: 100 },
  });
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(50);
  assert.equal(fixture.model("a").responseCount, 1024);
  assert.equal(fixture.model("c").mostInflight, 2048);
  await fixture.clock.advance(20_000);
  assert.deepEqual([sent.answers.length, sent.doneCount], [6000, 1]);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler ends a request whose model floods the steps behind it", async () => {
  const fixture = new EnsembleFixture(CHAIN, {
    a: { responseCount: 70_000, delayMs: 0, ignoresHold: true },
    b: { delayMs: 1_000 },
  });
  const sent = fixture.send({ X: 1 });
  await fixture.clock.advance(2_000);
  assert.equal(sent.doneCount, 1);
  assert.equal(sent.error?.code, "UNAVAILABLE");
  assert.match(
    sent.error!.message,
    /model 'a' sends responses without waiting.*\(step 0, model 'a'\)$/,
  );
  assertClean(fixture);
});

Deno.test("EnsembleScheduler keeps nothing of a decoupled step for a step that has one turn", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "m" }],
    ["join", { LEFT: "m", RIGHT: "X" }, { OUT: "n" }],
    ["b", { IN: "n" }, { OUT: "Y" }],
  ]);
  const fixture = new EnsembleFixture(config, {
    a: { responseCount: 10, compute: (_request, index) => [byteTensor("OUT", index + 1)] },
    join: { inputs: ["LEFT", "RIGHT"], delayMs: 100 },
    b: {},
  });
  const sent = fixture.send({ X: 9 });
  await fixture.clock.advance(9);
  assert.equal(fixture.model("a").responseCount, 9);
  assert.equal(
    fixture.model("a").unreleasedCount,
    1,
    "the first is in use, the others are for nobody",
  );
  await fixture.clock.advance(1_000);
  assert.deepEqual([sent.bytes, sent.doneCount], [{ Y: 1 }, 1]);
  assert.equal(fixture.model("join").requests.length, 1);
  assertClean(fixture);
});

Deno.test("EnsembleScheduler keeps nothing of a decoupled step for answers that need something else", async () => {
  const config = ensembleConfig([
    ["a", { IN: "X" }, { OUT: "Y" }],
    ["b", { IN: "X" }, { OUT: "Z" }],
  ], { outputs: ["Y", "Z"] });
  const fixture = new EnsembleFixture(config, {
    a: { responseCount: 10, compute: (_request, index) => [byteTensor("OUT", index + 1)] },
    b: { delayMs: 100 },
  });
  const sent = fixture.send({ X: 9 }, { outputs: ["Y", "Z"] });
  await fixture.clock.advance(50);
  assert.equal(fixture.model("a").unreleasedCount, 1);
  await fixture.clock.advance(1_000);
  assert.deepEqual([sent.bytes, sent.doneCount], [{ Y: 1, Z: 9 }, 1]);
  assertClean(fixture);
});
