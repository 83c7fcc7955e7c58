import assert from "node:assert/strict";
import { createSystemClock } from "./system_clock.ts";

// The one test of real time: the clock is what it is about. It waits for 16 ms altogether.
for (const delayMs of [0, 0.3, 1, 1.5, 3, 10]) {
  Deno.test(`SystemClock.setTimer(${delayMs}) is never early and fires once`, async () => {
    const clock = createSystemClock();
    let count = 0;
    const startMs = clock.now();
    // Timers of the clock keep no process alive, so something else has to.
    const keepAlive = setTimeout(() => {}, 10_000);
    await new Promise<void>((resolve) => {
      clock.setTimer(delayMs, () => {
        count++;
        resolve();
      });
    });
    clearTimeout(keepAlive);
    assert.ok(clock.now() - startMs >= delayMs);
    assert.equal(count, 1);
  });
}

Deno.test("SystemClock.setTimer() can be called off", async () => {
  const clock = createSystemClock();
  let fired = 0;
  for (const delayMs of [0, 0.5, 5]) clock.setTimer(delayMs, () => fired++).cancel();
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(fired, 0);
});
