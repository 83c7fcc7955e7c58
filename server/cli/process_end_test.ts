import assert from "node:assert/strict";
import { workersEnded } from "./process_end.ts";

function watch(rounds: readonly (readonly string[])[]) {
  let round = 0;
  let waitedMs = 0;
  return {
    names: () => [...rounds[Math.min(round, rounds.length - 1)]!],
    pause: (ms: number) => {
      round++;
      waitedMs += ms;
      return Promise.resolve();
    },
    waitedMs: () => waitedMs,
  };
}

Deno.test("workersEnded() does not wait where there is no Worker", async () => {
  const threads = watch([["deno", "tokio-runtime-w"]]);
  assert.equal(await workersEnded(threads), true);
  assert.equal(threads.waitedMs(), 0);
});

Deno.test("workersEnded() waits until the threads have gone", async () => {
  const threads = watch([["deno", "worker-1", "worker-12"], ["deno", "worker-12"], ["deno"]]);
  assert.equal(await workersEnded(threads), true);
  assert.equal(threads.waitedMs(), 10);
});

Deno.test("workersEnded() gives up after a while", async () => {
  const threads = watch([["worker-1"]]);
  assert.equal(await workersEnded(threads), false);
  assert.equal(threads.waitedMs(), 3000);
});

Deno.test("workersEnded() waits a moment where threads cannot be seen", async () => {
  const { pause, waitedMs } = watch([[]]);
  assert.equal(await workersEnded({ names: () => undefined, pause }), true);
  assert.equal(waitedMs(), 300);
});
