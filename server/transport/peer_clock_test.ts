import assert from "node:assert/strict";
import { PeerClock } from "./peer_clock.ts";

Deno.test("PeerClock.advance() goes with time, but not while nobody looks", () => {
  const clock = new PeerClock(100);
  assert.equal(clock.advance(350), 350);
  assert.equal(clock.advance(600), 600);
  assert.equal(clock.advance(90_600), 1_600, "the process was stopped");
  assert.equal(clock.advance(90_850), 1_850);
});
