import assert from "node:assert/strict";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { ServerError } from "../../proto/status.ts";
import type { ExecuteReport } from "../backend.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { KeptExecutions } from "./kept_executions.ts";

const REPORT: ExecuteReport = { outcomes: [{ outputs: [] }], inputEndMs: 0, outputStartMs: 0 };
const REQUESTS = [executeRequest({ inputs: [], outputs: [] })];

/** A process that answers with `reports`, one after the other; none left = never. */
function setUp(
  reports: readonly (ExecuteReport | undefined)[],
  { isUp = true, executeTimeoutMs = 0 } = {},
) {
  const left = [...reports];
  const killed: string[] = [];
  const session = {
    pid: 1,
    isOver: false,
    ended: new Promise<string>(() => {}),
    takesAhead: () => true,
    execute: () => left.length > 0 ? Promise.resolve(left.shift()) : new Promise<never>(() => {}),
    kill: (reason: string) => void killed.push(reason),
  };
  const clock = new FakeClock();
  const executions = new KeptExecutions({
    kept: { current: { session }, whenUp: () => Promise.resolve(isUp) },
    executeTimeoutMs,
    timers: clock,
    now: () => clock.now(),
    deathError: () => new ServerError("UNAVAILABLE", "it has died"),
  });
  return { executions, session, killed, clock };
}

Deno.test("execute() runs on the next process what the last one had not begun", async () => {
  const { executions } = setUp([undefined, REPORT]);
  assert.equal(await executions.execute(REQUESTS), REPORT);
});

Deno.test("execute() tells each request when there is no process any more", async () => {
  const { executions, session } = setUp([], { isUp: false });
  session.isOver = true;
  const { outcomes } = await executions.execute(REQUESTS);
  assert.match(Deno.inspect(outcomes[0]), /it has died/);
});

Deno.test("execute() ends a process that takes longer than it may", async () => {
  const { executions, killed, clock } = setUp([], { executeTimeoutMs: 2000 });
  void executions.execute(REQUESTS);
  await clock.advance(2000);
  assert.deepEqual(killed, ["execute() did not return within 2 s (execute-timeout-seconds)"]);
  assert.equal(executions.takesAhead(REQUESTS[0]!), false);
});
