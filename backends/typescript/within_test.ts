import assert from "node:assert/strict";
import { within } from "./within.ts";

const onLate = () => new Error("too late");

Deno.test("within() gives what comes in time, and refuses what does not", async () => {
  assert.equal(await within(Promise.resolve(1), 1000, onLate), 1);
  await assert.rejects(within(new Promise(() => {}), 1, onLate), { message: "too late" });
});

Deno.test("within() knows limits of more than the 24 days that a timer keeps", async () => {
  const coming = Promise.withResolvers<number>();
  setTimeout(coming.resolve, 20, 2);
  assert.equal(await within(coming.promise, 1e12, onLate), 2);
});
