import assert from "node:assert/strict";
import { parseCount } from "./runners.ts";

Deno.test("parseCount() reads the last count", () => {
  assert.deepEqual(parseCount("x\n12 passed, 3 failed\n"), { passed: 12, failed: 3 });
  assert.deepEqual(parseCount("ok | 9 passed (2 steps) | 0 failed\n"), { passed: 9, failed: 0 });
  assert.deepEqual(parseCount("ok | 9 passed | 0 failed | 1 ignored (45ms)\n"), {
    passed: 9,
    failed: 0,
  });
  assert.deepEqual(parseCount("a: 1 passed, 0 failed\n7 passed, 1 failed\n"), {
    passed: 7,
    failed: 1,
  });
  assert.equal(parseCount("nothing\n"), undefined);
});
