import assert from "node:assert/strict";
import { Cancellation, toAbortSignal } from "./cancellation.ts";

Deno.test("Cancellation calls each listener once, and none that was removed", () => {
  const cancellation = new Cancellation();
  const calls: string[] = [];
  const [first, second] = [() => calls.push("first"), () => calls.push("second")];
  cancellation.addEventListener("abort", first);
  cancellation.addEventListener("abort", first);
  cancellation.addEventListener("abort", second);
  cancellation.removeEventListener("abort", second);
  cancellation.removeEventListener("abort", () => {});
  assert.equal(cancellation.aborted, false);
  cancellation.abort();
  cancellation.abort();
  assert.equal(cancellation.aborted, true);
  assert.deepEqual(calls, ["first"]);
});

Deno.test("toAbortSignal() follows a cancellation, before and after it", () => {
  const cancellation = new Cancellation();
  const early = toAbortSignal(cancellation);
  assert.equal(early.aborted, false);
  cancellation.abort();
  assert.equal(early.aborted, true);
  assert.equal(toAbortSignal(cancellation).aborted, true);
  const own = new AbortController().signal;
  assert.equal(toAbortSignal(own), own);
});
