import assert from "node:assert/strict";
import { FakeClock } from "./fake_clock.ts";
import type { ModelLook, RepositoryLook } from "./model_repository_look.ts";
import { RepositoryPoller } from "./repository_poller.ts";

/** A poller of 10 s over repositories that tests write as stamps by model. */
class PollFixture {
  readonly clock = new FakeClock();
  readonly calls: string[] = [];
  readonly lines: string[] = [];
  readonly poller: RepositoryPoller;
  models: Record<string, string | Partial<ModelLook>> = {};
  lost: Record<string, string> = {};
  listed: readonly string[] = [];
  readonly unreadable = new Map<string, string | undefined>();
  lookCount = 0;
  failing = new Set<string>();
  loadMs = 0;

  constructor() {
    const note = (message: string) => void this.lines.push(message);
    const operation = (what: string) => async (id: string) => {
      this.calls.push(`${what} ${id}`);
      if (this.loadMs > 0) {
        await new Promise<void>((resolve) => void this.clock.setTimer(this.loadMs, resolve));
      }
      if (this.failing.has(id)) throw new Error("no");
    };
    this.poller = new RepositoryPoller({
      clock: this.clock,
      log: { info: note, warning: note, error: note, verbose: () => {} },
      intervalMs: 10_000,
      look: () => Promise.resolve(this.look()),
      load: operation("load"),
      unload: operation("unload"),
      unloadDouble: operation("double"),
      noteUnreadable: (id, reason) => this.unreadable.set(id, reason),
      affectedBy: () => [],
      onLook: (ids) => this.listed = ids,
    });
  }

  look(): RepositoryLook {
    this.lookCount++;
    const models = Object.entries(this.models).map(([id, model]): [string, ModelLook] => [
      id,
      {
        repositories: ["/a"],
        reason: "",
        stamp: undefined,
        ...(typeof model === "string" ? { stamp: model } : model),
      },
    ]);
    return { models: new Map(models), lost: new Map(Object.entries(this.lost)) };
  }

  async start(models: Record<string, string | Partial<ModelLook>>): Promise<void> {
    this.models = models;
    this.poller.start(this.look());
    await this.clock.advance(1);
  }

  /** What was done up to the end of the next poll. */
  async poll(durationMs = 10_000): Promise<string[]> {
    this.calls.length = 0;
    await this.clock.advance(durationMs);
    return [...this.calls];
  }
}

Deno.test("RepositoryPoller follows models that come, change and go", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "1", b: "1" });
  assert.deepEqual(await fixture.poll(), []);
  fixture.models = { a: "2", b: "1", c: "1" };
  assert.deepEqual(await fixture.poll(), []);
  assert.deepEqual(await fixture.poll(500), ["load a", "load c"]);
  assert.deepEqual(await fixture.poll(), []);
  fixture.models = { b: "1", c: "1" };
  assert.deepEqual(await fixture.poll(10_500), ["unload a"]);
  assert.deepEqual(fixture.listed, ["b", "c"]);
  await fixture.poller.stop();
  assert.equal(fixture.clock.timerCount, 0);
});

Deno.test("RepositoryPoller polls at once after the start: what changed meanwhile is read", async () => {
  const fixture = new PollFixture();
  fixture.models = { a: "1" };
  fixture.poller.start(fixture.look());
  fixture.models = { a: "2" };
  assert.deepEqual(await fixture.poll(600), ["load a"]);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller waits until files do not change any more", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "0", b: "0" });
  await fixture.clock.advance(9_000);
  fixture.models = { a: "size 1", b: "1" };
  await fixture.clock.advance(1_100);
  const calls: string[] = [];
  for (let size = 2; size < 8; size++) {
    fixture.models = { ...fixture.models, a: `size ${size}` };
    calls.push(...await fixture.poll(500));
  }
  assert.deepEqual(calls, ["load b"]);
  assert.deepEqual(await fixture.poll(1_000), ["load a"]);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller reads what never settles in the end", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "0" });
  fixture.models = {
    get a() {
      return String(fixture.lookCount);
    },
  };
  assert.deepEqual(await fixture.poll(60_000), []);
  assert.deepEqual(await fixture.poll(15_000), ["load a"]);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller lets a model that fails hold up no other, and tries it again when it changes", async () => {
  const fixture = new PollFixture();
  await fixture.start({});
  fixture.failing.add("bad");
  fixture.models = { bad: "1", good: "1" };
  assert.deepEqual(await fixture.poll(10_600), ["load bad", "load good"]);
  assert.deepEqual(await fixture.poll(30_000), []);
  fixture.models = { bad: "2", good: "1" };
  assert.deepEqual(await fixture.poll(11_000), ["load bad"]);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller keeps the models of a repository that cannot be listed", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "1", b: { stamp: "1", repositories: ["/b"] } });
  fixture.models = { b: { stamp: "1", repositories: ["/b"] } };
  fixture.lost = { "/a": "No such file or directory" };
  assert.deepEqual(await fixture.poll(30_000), []);
  assert.deepEqual(fixture.lines, [
    "model repository '/a' cannot be polled: No such file or directory; its models go on serving",
  ]);
  assert.deepEqual(fixture.listed, ["b", "a"]);
  fixture.lost = {};
  assert.deepEqual(await fixture.poll(10_600), ["unload a"]);
  assert.match(fixture.lines[1]!, /'\/a' can be polled again/);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller keeps a model whose files cannot be read, and tells it once", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "1" });
  fixture.models = { a: { reason: "Permission denied" } };
  assert.deepEqual(await fixture.poll(40_000), []);
  assert.equal(fixture.lines.length, 1);
  assert.match(fixture.lines[0]!, /Poll failed for model directory 'a': Permission denied/);
  assert.deepEqual([...fixture.unreadable], [["a", "Permission denied"]]);
  fixture.models = { a: "1" };
  assert.deepEqual(await fixture.poll(10_600), []);
  assert.deepEqual([...fixture.unreadable], [["a", undefined]]);
  fixture.models = { a: "1", b: { reason: "No" } };
  await fixture.poll(10_600);
  fixture.models = { a: "1" };
  await fixture.poll(10_600);
  assert.equal(fixture.unreadable.get("b"), undefined);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller takes a model out of service that appears in a second repository", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "1", b: "1" });
  fixture.models = { a: { stamp: "twice", repositories: ["/a", "/b"] }, b: "1" };
  assert.deepEqual(await fixture.poll(10_600), ["double a"]);
  fixture.models = { a: "1", b: "1" };
  assert.deepEqual(await fixture.poll(10_600), ["load a"]);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller.hasten() makes the next poll come sooner, but not for what leads to nothing", async () => {
  const fixture = new PollFixture();
  await fixture.start({ a: "1" });
  fixture.models = { a: "2" };
  fixture.poller.hasten();
  fixture.poller.hasten();
  assert.deepEqual(await fixture.poll(700), ["load a"]);
  let before = fixture.lookCount;
  for (let index = 0; index < 50; index++) {
    fixture.poller.hasten();
    await fixture.clock.advance(100);
  }
  assert.equal(fixture.lookCount - before, 1);
  await fixture.clock.advance(10_000);
  before = fixture.lookCount;
  fixture.models = { a: "3" };
  fixture.poller.hasten();
  assert.deepEqual(await fixture.poll(700), ["load a"]);
  await fixture.poller.stop();
});

Deno.test("RepositoryPoller lets loads end before it polls again, and stop() waits for them", async () => {
  const fixture = new PollFixture();
  await fixture.start({});
  fixture.loadMs = 25_000;
  fixture.models = { a: "1" };
  assert.deepEqual(await fixture.poll(10_600), ["load a"]);
  const before = fixture.lookCount;
  fixture.models = { a: "2" };
  assert.deepEqual(await fixture.poll(20_000), []);
  assert.equal(fixture.lookCount, before);
  let isStopped = false;
  const stopping = fixture.poller.stop().then(() => isStopped = true);
  await fixture.clock.advance(100);
  assert.equal(isStopped, false);
  await fixture.clock.advance(25_000);
  assert.equal(isStopped, true);
  await stopping;
  assert.equal(fixture.clock.timerCount, 0);
});

Deno.test("RepositoryPoller.stop() ends the wait between two looks", async () => {
  const fixture = new PollFixture();
  await fixture.start({});
  fixture.models = { a: "1" };
  await fixture.clock.advance(10_100);
  await fixture.poller.stop();
  assert.deepEqual(await fixture.poll(20_000), []);
  assert.equal(fixture.clock.timerCount, 0);
});
