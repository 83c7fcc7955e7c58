import assert from "node:assert/strict";
import { FakeClock } from "../../server/core/fake_clock.ts";
import type { ServerError } from "../../proto/status.ts";
import type { ExecuteReport } from "../backend.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { RestartPace } from "../restart_pace.ts";
import {
  type InstanceSession,
  IsolatedInstance,
  type IsolatedInstanceParts,
  type StartedInstance,
} from "./isolated_instance.ts";

const PLACEMENT = { name: "m_0", kind: "KIND_CPU", deviceId: 0 } as const;
const REPORT: ExecuteReport = { outcomes: [{ outputs: [] }], inputEndMs: 0, outputStartMs: 0 };

/** A process that answers at once unless it hangs, and dies when it is told to. */
class FakeSession implements InstanceSession {
  readonly pid = 7;
  isOver = false;
  hangs = false;
  closeCount = 0;
  readonly killed: string[] = [];
  readonly #ended = Promise.withResolvers<string>();
  readonly #running: ((report: ExecuteReport | undefined) => void)[] = [];

  get ended(): Promise<string> {
    return this.#ended.promise;
  }

  takesAhead(): boolean {
    return true;
  }

  execute(): Promise<ExecuteReport | undefined> {
    if (!this.hangs) return Promise.resolve(REPORT);
    return new Promise((resolve) => void this.#running.push(resolve));
  }

  isReady() {
    return this.hangs
      ? new Promise<never>(() => {})
      : Promise.resolve({ isReady: false, reason: "the model says so" });
  }

  close(): Promise<void> {
    this.closeCount++;
    this.die("");
    return Promise.resolve();
  }

  kill(reason: string): void {
    this.killed.push(reason);
    this.die(reason);
  }

  die(how: string): void {
    this.isOver = true;
    // What runs has its error from the process; what waits behind it is given back.
    for (const resolve of this.#running) resolve(undefined);
    this.#ended.resolve(how);
  }
}

function open(options: Partial<IsolatedInstanceParts> & { readonly hasIsReady?: boolean } = {}) {
  const clock = new FakeClock();
  const sessions: FakeSession[] = [];
  const warnings: string[] = [];
  const start = (): StartedInstance => {
    const session = new FakeSession();
    sessions.push(session);
    return { session, hasIsReady: options.hasIsReady ?? false };
  };
  const instance = new IsolatedInstance(
    {
      name: "m_0",
      start: () => Promise.resolve(start()),
      restartPace: new RestartPace(),
      executeTimeoutMs: 0,
      closeTimeoutMs: 1000,
      timers: clock,
      now: () => clock.now(),
      warn: (message) => void warnings.push(message),
      ...options,
    },
    PLACEMENT,
    start(),
  );
  return { clock, sessions, warnings, instance };
}

const REQUESTS = [executeRequest({ inputs: [], outputs: ["A"] })];
const messageOf = ({ outcomes }: ExecuteReport) =>
  (outcomes[0] as { error: ServerError }).error.message;

Deno.test("a request waits for a restart that is near, and runs on the new process", async () => {
  const { clock, sessions, warnings, instance } = open();
  sessions[0]!.die("it was ended by SIGSEGV");
  const running = instance.execute(REQUESTS);
  assert.deepEqual(await instance.isReady(), {
    isReady: false,
    reason: "the process of instance 'm_0' has died and is about to be started again",
  });
  await clock.advance(100);
  assert.equal(await running, REPORT);
  assert.equal(sessions.length, 2);
  assert.deepEqual(await instance.isReady(), { isReady: true });
  assert.deepEqual(warnings, [
    "the process of 'm_0' (pid 7) has died: it was ended by SIGSEGV",
    "the process of 'm_0' was started again",
  ]);
});

Deno.test("what waited behind a batch that ended the process runs on the next one", async () => {
  const { clock, sessions, instance } = open();
  sessions[0]!.hangs = true;
  const waiting = instance.execute(REQUESTS);
  sessions[0]!.die("it was ended by SIGABRT");
  await clock.advance(100);
  assert.equal(await waiting, REPORT);
});

Deno.test("a process that dies too often stays down", async () => {
  const { clock, sessions, instance, warnings } = open();
  for (let death = 0; death < 6; death++) {
    assert.equal(instance.hasGivenUp, false);
    sessions.at(-1)!.die("it was ended by SIGKILL");
    await clock.advance(3000);
  }
  assert.equal(sessions.length, 6);
  assert.equal(instance.hasGivenUp, true);
  assert.match(
    messageOf(await instance.execute(REQUESTS)),
    /has died too often and is not started/,
  );
  assert.match(warnings.at(-1)!, /is not started again: it has died too often/);
  await instance[Symbol.asyncDispose]();
});

Deno.test("a start that fails is tried again later", async () => {
  let tries = 0;
  const { clock, sessions, instance, warnings } = open({
    start: () => Promise.reject(new Error(`no luck ${++tries}`)),
  });
  sessions[0]!.die("it was ended by SIGKILL");
  await clock.advance(100);
  await clock.advance(200);
  assert.equal(tries, 2);
  assert.match(warnings.at(-1)!, /cannot be started again: no luck 2/);
  await instance[Symbol.asyncDispose]();
});

Deno.test("an execution that takes longer than it may ends the process", async () => {
  const { clock, sessions, instance } = open({ executeTimeoutMs: 2000 });
  sessions[0]!.hangs = true;
  assert.equal(instance.takesAhead(REQUESTS[0]!), false);
  const running = instance.execute(REQUESTS);
  await clock.advance(2000);
  assert.deepEqual(sessions[0]!.killed, [
    "execute() did not return within 2 s (execute-timeout-seconds)",
  ]);
  await clock.advance(100);
  assert.equal(await running, REPORT);
});

Deno.test("a process that does not tell whether it is ready is not", async () => {
  const { clock, sessions, instance } = open({ hasIsReady: true });
  assert.deepEqual(await instance.isReady(), { isReady: false, reason: "the model says so" });
  sessions[0]!.hangs = true;
  const asked = instance.isReady();
  await clock.advance(5000);
  assert.deepEqual(await asked, {
    isReady: false,
    reason: "no answer of the process within 5 s",
  });
});

Deno.test("disposing closes the process, and starts none any more", async () => {
  const { clock, sessions, instance } = open();
  await instance[Symbol.asyncDispose]();
  await instance[Symbol.asyncDispose]();
  assert.equal(sessions[0]!.closeCount, 1);
  await clock.advance(60_000);
  assert.equal(sessions.length, 1);
});
