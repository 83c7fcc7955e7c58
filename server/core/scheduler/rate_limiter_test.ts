import assert from "node:assert/strict";
import type { ServerError } from "../../../proto/status.ts";
import { RateLimiterFixture } from "./rate_limiter_fixture.ts";

const R1 = { resources: [{ name: "R", count: 1 }] };

Deno.test("RateLimiter lets as many instances run as there are resources for", async () => {
  const fixture = new RateLimiterFixture([{ name: "R", count: 2 }]);
  const model = fixture.load("m", { groups: [{ ...R1, count: 4 }] });
  model.sendMany(6);
  await fixture.clock.advance(5);
  assert.equal(model.executions.length, 2);
  await fixture.clock.advance(100);
  assert.deepEqual(model.executions.map(({ atMs }) => atMs), [0, 0, 10, 10, 20, 20]);
  assert.ok(model.answers.every(({ answerCount, error }) => answerCount === 1 && !error));
  assert.equal(model.scheduler.inflightCount, 0);
  fixture.checkIdle();
});

Deno.test("RateLimiter has by default what the most demanding instance needs", async () => {
  const fixture = new RateLimiterFixture();
  const small = fixture.load("small", { groups: [{ ...R1, count: 4 }] });
  small.sendMany(2);
  await fixture.clock.advance(100);
  assert.deepEqual(small.executions.map(({ atMs }) => atMs), [0, 10]);
  const large = fixture.load("large", { groups: [{ resources: [{ name: "R", count: 3 }] }] });
  small.sendMany(4);
  await fixture.clock.advance(100);
  assert.deepEqual(small.executions.slice(2).map(({ atMs }) => atMs), [100, 100, 100, 110]);
  await fixture.unload(large);
  assert.deepEqual(fixture.limiter.resources().map(({ capacity }) => capacity), [1]);
  small.sendMany(2);
  await fixture.clock.advance(100);
  assert.deepEqual(small.executions.slice(6).map(({ atMs }) => atMs), [200, 210]);
  fixture.checkIdle();
});

Deno.test("RateLimiter lets those that wait run when a load makes room", async () => {
  const fixture = new RateLimiterFixture();
  const small = fixture.load("small", { groups: [{ ...R1, count: 2 }], executeMs: 50 });
  small.sendMany(2);
  await fixture.clock.advance(10);
  assert.equal(small.executions.length, 1);
  fixture.load("large", { groups: [{ resources: [{ name: "R", count: 2 }] }] });
  await fixture.clock.advance(0);
  assert.equal(small.executions.length, 2);
});

Deno.test("RateLimiter keeps resources of devices apart, and shares global ones", async () => {
  const fixture = new RateLimiterFixture([
    { name: "R", count: 1 },
    { name: "R", count: 2, deviceId: 1 },
    { name: "G", count: 3 },
  ]);
  const resources = [{ name: "R", count: 1 }, { name: "G", count: 1, global: true }];
  const model = fixture.load("m", { groups: [{ resources, count: 2, devices: [0, 1, 2] }] });
  model.sendMany(6);
  await fixture.clock.advance(5);
  // One of each device, or two of device 1; never more than three at all.
  assert.equal(model.executions.length, 3);
  await fixture.clock.advance(100);
  assert.equal(model.answers.filter(({ answerCount }) => answerCount === 1).length, 6);
  fixture.checkIdle();
});

Deno.test("RateLimiter never lets an instance wait behind one whose resources it does not need", async () => {
  const fixture = new RateLimiterFixture();
  const holder = fixture.load("holder", { groups: [R1], executeMs: 1000 });
  const waiting = fixture.load("waiting", { groups: [R1] });
  const free = fixture.load("free", { groups: [{ priority: 9 }], executeMs: 1 });
  const other = fixture.load("other", { groups: [{ resources: [{ name: "S", count: 1 }] }] });
  holder.send();
  await fixture.clock.advance(1);
  waiting.send();
  free.sendMany(20);
  other.sendMany(3);
  await fixture.clock.advance(100);
  assert.equal(waiting.executions.length, 0);
  assert.equal(free.executions.length, 20);
  assert.equal(other.executions.length, 3);
  await fixture.clock.advance(1000);
  assert.equal(waiting.executions.length, 1);
  fixture.checkIdle();
});

Deno.test("RateLimiter uses an instance of the model that needs nothing while others wait", async () => {
  const fixture = new RateLimiterFixture();
  const holder = fixture.load("holder", { groups: [R1], executeMs: 1000 });
  holder.send();
  await fixture.clock.advance(1);
  const mixed = fixture.load("mixed", { groups: [R1, { priority: 5 }] });
  mixed.sendMany(4);
  await fixture.clock.advance(50);
  assert.deepEqual(mixed.executionCounts(2), [0, 4]);
  await fixture.clock.advance(2000);
  fixture.checkIdle();
});

Deno.test("RateLimiter keeps what the first in turn needs for it, however small others are", async () => {
  const fixture = new RateLimiterFixture([{ name: "R", count: 4 }, { name: "S", count: 1 }]);
  const small = fixture.load("small", { groups: [{ ...R1, count: 4 }], executeMs: [7, 9, 11, 13] });
  const large = fixture.load("large", {
    groups: [{ resources: [{ name: "R", count: 4 }, { name: "S", count: 1 }] }],
  });
  small.sendMany(500);
  await fixture.clock.advance(3);
  const answer = large.send();
  await fixture.clock.advance(30);
  assert.equal(answer.answerCount, 1, "small ones that keep coming do not starve it");
  await fixture.clock.advance(10_000);
  assert.equal(small.executions.length, 500);
  fixture.checkIdle();
});

Deno.test("RateLimiter gives up a claim with the request it was for", async () => {
  const fixture = new RateLimiterFixture([{ name: "R", count: 2 }]);
  const holder = fixture.load("holder", { groups: [R1], executeMs: 1000 });
  holder.send();
  await fixture.clock.advance(1);
  for (const batching of [undefined, {}]) {
    const groups = [{ resources: [{ name: "R", count: 2 }] }];
    const large = fixture.load(`large${batching}`, { groups, ...(batching && { batching }) });
    const small = fixture.load(`small${batching}`, { groups: [{ ...R1, priority: 2 }] });
    const controller = new AbortController();
    large.send({ signal: controller.signal });
    await fixture.clock.advance(1);
    const answer = small.send();
    await fixture.clock.advance(20);
    assert.equal(answer.answerCount, 0);
    controller.abort();
    await fixture.clock.advance(10);
    assert.equal(answer.answerCount, 1);
    assert.equal(large.executions.length, 0);
  }
});

Deno.test("RateLimiter gives priority 2 half as many turns as priority 1, between models", async () => {
  const fixture = new RateLimiterFixture();
  const one = fixture.load("one", { groups: [{ ...R1, priority: 1 }] });
  const two = fixture.load("two", { groups: [{ ...R1, priority: 2 }] });
  const five = fixture.load("five", { groups: [{ ...R1, priority: 5 }] });
  for (const model of [five, two, one]) model.sendMany(400);
  await fixture.clock.advance(10 * 170);
  const counts = [one, two, five].map(({ executions }) => executions.length);
  assert.deepEqual(counts.map((count) => Math.round(count / 10)), [10, 5, 2]);
});

Deno.test("RateLimiter counts the execution that is asked for, as the reference does", async () => {
  const fixture = new RateLimiterFixture();
  const one = fixture.load("one", { groups: [{ ...R1, priority: 1 }] });
  const two = fixture.load("two", { groups: [{ ...R1, priority: 2 }] });
  one.sendMany(80);
  two.sendMany(80);
  await fixture.clock.advance(72 * 10 + 35 * 10);
  assert.deepEqual([one.executions.length, two.executions.length], [72, 36]);
  const order = [...one.executions, ...two.executions].sort((a, b) => a.atMs - b.atMs)
    .map(({ instance }) => instance.slice(0, 3));
  assert.deepEqual(order.slice(0, 6), ["one", "one", "two", "one", "one", "two"]);
});

Deno.test("RateLimiter gives priority 2 half as many turns as priority 1, within a model", async () => {
  const fixture = new RateLimiterFixture();
  const groups = [{ ...R1, priority: 1 }, { ...R1, priority: 2 }];
  const model = fixture.load("m", { groups });
  model.sendMany(90);
  await fixture.clock.advance(10_000);
  assert.deepEqual(model.executionCounts(2), [60, 30]);
});

Deno.test("RateLimiter takes the instance with the fewest turns among those that need nothing", async () => {
  const fixture = new RateLimiterFixture();
  const model = fixture.load("m", { groups: [{ priority: 1 }, { priority: 3 }] });
  for (let index = 0; index < 40; index++) {
    model.send();
    await fixture.clock.advance(20);
  }
  assert.deepEqual(model.executionCounts(2), [30, 10]);
});

Deno.test("RateLimiter lets nobody catch up on turns missed while it had no work", async () => {
  const fixture = new RateLimiterFixture();
  const busy = fixture.load("busy", { groups: [R1] });
  busy.sendMany(1200);
  await fixture.clock.advance(10_000);
  const late = fixture.load("late", { groups: [R1] });
  late.sendMany(100);
  const before = busy.executions.length;
  await fixture.clock.advance(1000);
  assert.ok(Math.abs(busy.executions.length - before - 50) <= 1);
  assert.ok(Math.abs(late.executions.length - 50) <= 1);
});

Deno.test("RateLimiter forms a batch only when its instance has its resources", async () => {
  const fixture = new RateLimiterFixture();
  const holder = fixture.load("holder", { groups: [R1], executeMs: 100 });
  const batcher = fixture.load("batcher", { groups: [R1], maxBatchSize: 8, batching: {} });
  holder.send();
  await fixture.clock.advance(1);
  const controller = new AbortController();
  batcher.send();
  await fixture.clock.advance(20);
  const gone = batcher.send({ signal: controller.signal });
  await fixture.clock.advance(20);
  batcher.sendMany(3);
  controller.abort();
  await fixture.clock.advance(1);
  assert.equal(gone.error?.code, "CANCELLED");
  await fixture.clock.advance(200);
  assert.deepEqual(batcher.executions.map(({ rows }) => rows), [4]);
  fixture.checkIdle();
});

Deno.test("RateLimiter leaves resources to others while a batch waits for company", async () => {
  const fixture = new RateLimiterFixture();
  const batcher = fixture.load("batcher", {
    groups: [R1],
    maxBatchSize: 8,
    batching: { maxQueueDelayMicroseconds: 100_000n },
  });
  const other = fixture.load("other", { groups: [R1], executeMs: 30 });
  batcher.send();
  await fixture.clock.advance(10);
  other.send();
  await fixture.clock.advance(0);
  assert.equal(other.executions.length, 1);
  await fixture.clock.advance(200);
  assert.deepEqual(batcher.executions.map(({ atMs }) => atMs), [100]);
  fixture.checkIdle();
});

Deno.test("RateLimiter lets deadlines pass and queues fill while an instance waits", async () => {
  const fixture = new RateLimiterFixture();
  const holder = fixture.load("holder", { groups: [R1], executeMs: 1000 });
  const batcher = fixture.load("batcher", {
    groups: [R1],
    batching: { defaultQueuePolicy: { defaultTimeoutMicroseconds: 50_000n, maxQueueSize: 1 } },
  });
  holder.send();
  await fixture.clock.advance(1);
  const late = batcher.send();
  const surplus = batcher.send();
  await fixture.clock.advance(100);
  assert.equal(late.error?.message, "Request timeout expired");
  assert.equal(late.answeredMs, 51);
  assert.match(surplus.error?.message ?? "", /Exceeds maximum queue size/);
  await fixture.clock.advance(2000);
  assert.equal(batcher.executions.length, 0);
  // The queue is only full when nobody could take from it.
  const pair = batcher.sendMany(2);
  await fixture.clock.advance(100);
  assert.ok(pair.every(({ error }) => error === undefined));
  fixture.checkIdle();
});

Deno.test("RateLimiter finishes the queue of a model that is unloaded", async () => {
  const fixture = new RateLimiterFixture();
  const model = fixture.load("m", { groups: [R1] });
  const other = fixture.load("other", { groups: [R1] });
  other.sendMany(3);
  const answers = model.sendMany(5);
  const unloaded = fixture.unload(model);
  await fixture.clock.advance(1000);
  await unloaded;
  assert.ok(answers.every(({ answerCount, error }) => answerCount === 1 && error === undefined));
  fixture.checkIdle();
});

Deno.test("RateLimiter refuses a model that needs more than there is, with all that is missing", () => {
  const fixture = new RateLimiterFixture([
    { name: "POOL", count: 3 },
    { name: "POOL", count: 5 },
    { name: "DEV", count: 2, deviceId: 1 },
  ]);
  const load = () =>
    fixture.load("m", {
      groups: [
        { resources: [{ name: "POOL", count: 4 }, { name: "OTHER", count: 1 }] },
        { resources: [{ name: "POOL", count: 7 }, { name: "DEV", count: 2 }], devices: [0, 1] },
      ],
    });
  const text = (name: string, limit: number, count: number) =>
    `Resource count for "${name}" is limited to ${limit} which will prevent scheduling of one or ` +
    `more model instances, the minimum required count is ${count}`;
  assert.throws(load, ({ code, message }: ServerError) => {
    assert.equal(code, "INVALID_ARG");
    assert.ok(message.includes(`${text("POOL", 3, 7)} (instance_group[1].rate_limiter.`), message);
    assert.ok(message.includes(text("OTHER", 0, 1)));
    assert.ok(message.includes("--rate-limit-resource=OTHER:COUNT"));
    assert.ok(message.includes(text("DEV", 0, 2)), "device 0 has none");
    return true;
  });
  assert.deepEqual(fixture.limiter.resources(), [], "nothing of a failed load stays behind");
  fixture.load("m", { groups: [{ resources: [{ name: "POOL", count: 3 }] }] });
});

Deno.test("RateLimiter takes for a global resource the largest count of its name", () => {
  const fixture = new RateLimiterFixture([
    { name: "G", count: 2 },
    { name: "G", count: 6, deviceId: 4 },
  ]);
  fixture.load("m", { groups: [{ resources: [{ name: "G", count: 6, global: true }] }] });
  assert.equal(fixture.limiter.resources()[0]?.capacity, 6);
});

Deno.test("RateLimiter refuses a name that is both global and of devices", async () => {
  const text = 'Resource "R" is present as both global and device-specific resource in the model ' +
    "configuration.";
  const fixture = new RateLimiterFixture();
  const global = { resources: [{ name: "R", count: 1, global: true }] };
  const matches = (part: string) => ({ code, message }: ServerError) =>
    code === "INVALID_ARG" && message.startsWith(text) && message.includes(part);
  assert.throws(() => fixture.load("m", { groups: [R1, global] }), matches("instance_group[1]"));
  const model = fixture.load("m", { groups: [R1] });
  assert.throws(() => fixture.load("n", { groups: [global] }), matches("a model that is loaded"));
  // The next version of the same model takes over from the one that is loaded.
  const next = fixture.load("m", { groups: [global] });
  await fixture.unload(model);
  fixture.load("n", { groups: [global] });
  await fixture.unload(next);
});

Deno.test("RateLimiter ignores a demand of nothing, and takes the last of a name given twice", async () => {
  const fixture = new RateLimiterFixture([{ name: "R", count: 1 }]);
  const none = fixture.load("none", { groups: [{ resources: [{ name: "S", count: 0 }] }] });
  const twice = fixture.load("twice", {
    groups: [{ resources: [{ name: "R", count: 9 }, { name: "R", count: 1 }] }],
  });
  none.send();
  twice.send();
  await fixture.clock.advance(100);
  assert.equal(none.executions.length + twice.executions.length, 2);
});

Deno.test("RateLimiter frees what an execution that failed has held", async () => {
  const fixture = new RateLimiterFixture();
  const failures = [new Error("Out of luck"), undefined];
  const model = fixture.load("m", { groups: [R1], failure: () => failures.shift() });
  const answers = model.sendMany(2);
  await fixture.clock.advance(100);
  assert.deepEqual(answers.map(({ error }) => error?.message), ["Out of luck", undefined]);
  fixture.checkIdle();
});
