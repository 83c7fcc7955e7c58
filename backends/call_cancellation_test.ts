import assert from "node:assert/strict";
import { CallCancellation } from "./call_cancellation.ts";

Deno.test("CallCancellation tells each listener once, and none that was removed or came later", () => {
  const cancellation = new CallCancellation();
  const told: string[] = [];
  const [first, second] = [() => void told.push("first"), () => void told.push("second")];
  for (const listener of [first, first, second]) cancellation.addEventListener("abort", listener);
  cancellation.removeEventListener("abort", second);
  cancellation.removeEventListener("abort", () => {});
  assert.equal(cancellation.aborted, false);
  cancellation.cancel();
  cancellation.cancel();
  cancellation.addEventListener("abort", second);
  assert.deepEqual([cancellation.aborted, told], [true, ["first"]]);
});
