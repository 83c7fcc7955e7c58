import assert from "node:assert/strict";
import { SchedulerFixture } from "./scheduler_fixture.ts";
import { testScheduler } from "./scheduler_suite.ts";

testScheduler("DefaultScheduler", (options = {}) => new SchedulerFixture(options));

Deno.test("DefaultScheduler never joins requests", async () => {
  const fixture = new SchedulerFixture({ executeMs: 10 });
  fixture.sendAll([2, 1, 3]);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [2, 1, 3]);
});

Deno.test("DefaultScheduler ignores priorities and timeouts", async () => {
  const fixture = new SchedulerFixture({ executeMs: 1000 });
  fixture.send();
  fixture.send({ id: "low", priority: 9, timeoutUs: 1 });
  fixture.send({ id: "high", priority: 1 });
  await fixture.clock.advance(5000);
  assert.deepEqual(fixture.answered.map(({ id }) => id), ["0", "low", "high"]);
});
