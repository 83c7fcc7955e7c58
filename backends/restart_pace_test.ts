import assert from "node:assert/strict";
import { RestartPace } from "./restart_pace.ts";

Deno.test("RestartPace waits longer each time and gives up after five ends in 60 s", () => {
  const pace = new RestartPace();
  const delays = [0, 1, 2, 3, 4, 5].map((second) => pace.fail(second * 1000));
  assert.deepEqual(delays, [100, 200, 400, 800, 1600, undefined]);
});

Deno.test("RestartPace forgets ends that are 60 s old", () => {
  const pace = new RestartPace();
  for (const second of [0, 1, 2, 3]) pace.fail(second * 1000);
  assert.equal(pace.fail(62_500), 200);
});
