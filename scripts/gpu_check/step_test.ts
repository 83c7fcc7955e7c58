import assert from "node:assert/strict";
import { type CheckContext, lastJson, runStep, testOutcome } from "./step.ts";

const CONTEXT: CheckContext = { env: {}, folder: "/tmp", python: "python3", isStandIn: true };
const STEP = { name: "s", what: "", limitSeconds: 60 };

Deno.test("runStep() turns what is thrown into a failure, and skips when there is no time", async () => {
  const run = () => Promise.reject(new Error("no driver"));
  const failed = await runStep({ ...STEP, run }, CONTEXT, 60_000);
  assert.deepEqual([failed.state, failed.detail, failed.name], ["failed", "no driver", "s"]);
  const late = await runStep({ ...STEP, run }, CONTEXT, 10);
  assert.deepEqual([late.state, late.detail], ["skipped", "the time is over"]);
});

Deno.test("testOutcome() reads the counts of deno test and of pytest", () => {
  const outcome = (code: number, stdout: string) => testOutcome({ code, stdout, stderr: "" });
  assert.equal(outcome(0, "ok | 3 passed | 0 failed | 1 ignored (2s)").state, "passed");
  assert.match(outcome(0, "12 passed, 0 failed, 2 skipped").detail, /^12 passed.*2 skipped$/);
  assert.equal(outcome(1, "FAILED | 3 passed | 1 failed").state, "failed");
  assert.equal(outcome(0, "0 passed, 0 failed, 5 skipped").state, "skipped");
  assert.equal(outcome(1, "a crash").state, "failed");
});

Deno.test("lastJson() finds the result among what libraries print", () => {
  const stdout = 'Warning: x\n{"a":1}\n{"a":2}\nbye\n';
  assert.deepEqual(lastJson({ code: 0, stdout, stderr: "" }), { a: 2 });
  assert.throws(
    () => lastJson({ code: 139, stdout: "", stderr: "core dumped" }),
    /There is no result \(status 139\): core dumped/,
  );
});
