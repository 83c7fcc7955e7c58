import assert from "node:assert/strict";
import { RestartPace } from "./restart_pace.ts";

Deno.test("fail() doubles from 0.1 s and gives up after five restarts in a minute", () => {
  const pace = new RestartPace();
  const delays = [0, 200, 400, 800, 1600].map((nowMs) => pace.fail(nowMs));
  assert.deepEqual(delays, [100, 200, 400, 800, 1600]);
  assert.equal(pace.fail(3200), undefined);
});

Deno.test("fail() goes on up to 30 s for ends that are rarer", () => {
  const pace = new RestartPace();
  const delays = Array.from({ length: 12 }, (_, index) => pace.fail(index * 15_000));
  assert.deepEqual(delays.slice(0, 4), [100, 200, 400, 800]);
  assert.equal(delays.at(-1), 30_000);
});

Deno.test("fail() begins anew for one that lived for long", () => {
  const pace = new RestartPace();
  pace.fail(0);
  pace.fail(1000);
  assert.equal(pace.fail(100_000), 100);
});
