import assert from "node:assert/strict";
import { FakeClock } from "../../server/core/fake_clock.ts";
import type { ExecuteReport } from "../backend.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { RestartPace } from "../restart_pace.ts";
import { executeError } from "./execute_error.ts";
import { type InstanceParts, type InstanceSession, PythonInstance } from "./instance.ts";

const PLACEMENT = { name: "m_0", kind: "KIND_CPU", deviceId: 0 } as const;
const REPORT: ExecuteReport = { outcomes: [{ outputs: [] }], inputEndMs: 0, outputStartMs: 0 };

/** A process that answers at once unless it hangs, and dies when it is told to. */
class FakeSession implements InstanceSession {
  readonly pid = 1;
  isOver = false;
  hangs = false;
  /** Requests it takes although others run. */
  takes = true;
  /** Executions that wait behind another one. */
  readonly #waiting: ((report: ExecuteReport | undefined) => void)[] = [];
  finalizeCount = 0;
  #runningCount = 0;
  readonly #ended = Promise.withResolvers<string>();
  readonly #execution = Promise.withResolvers<ExecuteReport>();

  get ended(): Promise<string> {
    return this.#ended.promise;
  }

  takesAhead(): boolean {
    return this.takes;
  }

  execute(): Promise<ExecuteReport | undefined> {
    if (!this.hangs) return Promise.resolve(REPORT);
    if (++this.#runningCount === 1) return this.#execution.promise;
    return new Promise((resolve) => void this.#waiting.push(resolve));
  }

  isReady() {
    return Promise.resolve({ isReady: false, reason: "the model says so" });
  }

  finalize(): Promise<void> {
    this.finalizeCount++;
    this.die("");
    return Promise.resolve();
  }

  kill(reason: string): void {
    this.die(reason);
  }

  die(how: string): void {
    this.isOver = true;
    const error = executeError("m_0", how);
    this.#execution.resolve({ ...REPORT, outcomes: [{ error }] });
    for (const resolve of this.#waiting) resolve(undefined);
    this.#ended.resolve(how);
  }
}

async function openInstance(options: Partial<InstanceParts> & { failsAfter?: number } = {}) {
  const clock = new FakeClock();
  const sessions: FakeSession[] = [];
  const warnings: string[] = [];
  const instance = await PythonInstance.create({
    start: () => {
      if (sessions.length >= (options.failsAfter ?? Infinity)) {
        return Promise.reject(new Error("no luck"));
      }
      const session = new FakeSession();
      sessions.push(session);
      return Promise.resolve({ session, hasIsReady: true });
    },
    restartPace: new RestartPace(),
    executeTimeoutMs: 0,
    finalizeTimeoutMs: 1000,
    timers: clock,
    now: () => clock.now(),
    warn: (message) => void warnings.push(message),
    ...options,
  }, PLACEMENT);
  return { instance, sessions, clock, warnings };
}

const REQUESTS = [executeRequest({ inputs: [], outputs: ["A"] })];
const messageOf = (report: ExecuteReport) =>
  (report.outcomes[0] as { error?: Error }).error?.message;

Deno.test("a process that died is started again, and requests wait for it", async () => {
  const { instance, sessions, clock } = await openInstance();
  sessions[0]!.die("it was ended by SIGSEGV");
  await clock.settle();
  const report = instance.execute(REQUESTS);
  assert.equal((await instance.isReady()).isReady, false);
  assert.equal(sessions.length, 1);
  await clock.advance(100);
  assert.equal(sessions.length, 2);
  assert.equal(await report, REPORT);
  await instance[Symbol.asyncDispose]();
  assert.equal(clock.timerCount, 0);
});

Deno.test("a process that died too often stays dead, and requests fail at once", async () => {
  const { instance, sessions, clock, warnings } = await openInstance();
  for (let death = 0; death < 6; death++) {
    sessions.at(-1)!.die("it exited with code 1");
    await clock.advance(2000);
  }
  assert.equal(sessions.length, 6);
  assert.equal(instance.hasGivenUp, true);
  assert.equal(
    messageOf(await instance.execute(REQUESTS)),
    "Failed to process the request(s) for model instance 'm_0', message: Stub process 'm_0' is " +
      "not healthy.",
  );
  assert.deepEqual(await instance.isReady(), {
    isReady: false,
    reason: "Stub process 'm_0' is not healthy.",
  });
  assert.match(warnings.at(-1)!, /not started again/);
  await instance[Symbol.asyncDispose]();
});

Deno.test("without a restart policy a process stays dead", async () => {
  const { instance, sessions, clock } = await openInstance({ restartPace: undefined });
  sessions[0]!.die("it exited with code 1");
  await clock.settle();
  assert.match(messageOf(await instance.execute(REQUESTS))!, /is not healthy/);
  assert.equal(clock.timerCount, 0);
  await instance[Symbol.asyncDispose]();
  assert.equal(sessions.length, 1);
});

Deno.test("a model that cannot be initialized again is tried again later", async () => {
  const { instance, sessions, clock, warnings } = await openInstance({ failsAfter: 1 });
  sessions[0]!.die("it exited with code 1");
  await clock.settle();
  const report = instance.execute(REQUESTS);
  await clock.advance(100);
  assert.match(messageOf(await report)!, /is not healthy/);
  await clock.advance(10_000);
  assert.equal(warnings.filter((text) => /no luck/.test(text)).length, 5);
  await instance[Symbol.asyncDispose]();
  assert.equal(clock.timerCount, 0);
});

Deno.test("execute() that takes longer than its bound ends the process", async () => {
  const { instance, sessions, clock } = await openInstance({ executeTimeoutMs: 5000 });
  sessions[0]!.hangs = true;
  const report = instance.execute(REQUESTS);
  await clock.advance(5000);
  assert.match(messageOf(await report)!, /5 s \(execute-timeout-seconds\)/);
  await instance[Symbol.asyncDispose]();
});

Deno.test("disposing an instance finalizes its model once and leaves no timer", async () => {
  const { instance, sessions, clock } = await openInstance();
  await instance[Symbol.asyncDispose]();
  await instance[Symbol.asyncDispose]();
  assert.equal(sessions[0]!.finalizeCount, 1);
  await clock.advance(60_000);
  assert.equal(sessions.length, 1);
});

Deno.test("disposing an instance calls a restart off", async () => {
  const { instance, sessions, clock } = await openInstance();
  sessions[0]!.die("it exited with code 1");
  await clock.settle();
  await instance[Symbol.asyncDispose]();
  assert.equal(clock.timerCount, 0);
  assert.equal(sessions.length, 1);
});

Deno.test("an instance that is removed gives up a start that is under way", async () => {
  const sessions: FakeSession[] = [];
  const { instance, clock, warnings } = await openInstance({
    start: (signal) => {
      if (sessions.length > 0) {
        return new Promise((_, reject) => signal.addEventListener("abort", () => reject("gone")));
      }
      sessions.push(new FakeSession());
      return Promise.resolve({ session: sessions[0]!, hasIsReady: false });
    },
  });
  sessions[0]!.die("it exited with code 1");
  await sessions[0]!.ended;
  await clock.advance(100);
  await instance[Symbol.asyncDispose]();
  assert.ok(warnings.every((warning) => !warning.includes("cannot be started again")));
});

Deno.test("a request behind one that ended the process runs on the next process", async () => {
  const { instance, sessions, clock } = await openInstance();
  sessions[0]!.hangs = true;
  const first = instance.execute(REQUESTS);
  assert.equal(instance.takesAhead(REQUESTS[0]!), true);
  const second = instance.execute(REQUESTS);
  sessions[0]!.die("crash");
  assert.match(messageOf(await first)!, /crash/);
  await clock.advance(1000);
  assert.deepEqual(await second, REPORT);
  assert.equal(sessions.length, 2);
  await instance[Symbol.asyncDispose]();
});

Deno.test("nothing is given ahead when each execution has its own time", async () => {
  const { instance } = await openInstance({ executeTimeoutMs: 1000 });
  assert.equal(instance.takesAhead(REQUESTS[0]!), false);
  await instance[Symbol.asyncDispose]();
});
