import assert from "node:assert/strict";
import { RestartPolicy } from "./restart_policy.ts";

Deno.test("nextDelay() doubles from 0.1 s and gives up after five restarts in a minute", () => {
  const policy = new RestartPolicy();
  const delays = [0, 200, 400, 800, 1600].map((nowMs) => policy.nextDelay(nowMs));
  assert.deepEqual(delays, [100, 200, 400, 800, 1600]);
  assert.equal(policy.nextDelay(3200), undefined);
});

Deno.test("nextDelay() goes on up to 30 s for deaths that are rarer", () => {
  const policy = new RestartPolicy();
  const delays = Array.from({ length: 12 }, (_, index) => policy.nextDelay(index * 15_000));
  assert.deepEqual(delays.slice(0, 4), [100, 200, 400, 800]);
  assert.equal(delays.at(-1), 30_000);
});

Deno.test("nextDelay() begins anew for a process that lived for long", () => {
  const policy = new RestartPolicy();
  policy.nextDelay(0);
  policy.nextDelay(1000);
  assert.equal(policy.nextDelay(100_000), 100);
});
