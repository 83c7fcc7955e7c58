import assert from "node:assert/strict";
import { parseSuiteOutput } from "./case_result.ts";
import { judgeCases } from "./pending.ts";

Deno.test("judgeCases() counts what passes and what waits", () => {
  const cases = new Map([["a/one", true], ["a/two", false]]);
  assert.deepEqual(judgeCases(cases, { "a/two": "sequence" }), {
    passed: 1,
    problems: [],
    pending: 1,
  });
});

Deno.test("judgeCases() reports failures, listed cases that pass and listed cases that are gone", () => {
  const cases = new Map([["a/one", false], ["a/two", true]]);
  assert.deepEqual(judgeCases(cases, { "a/two": "cache", "a/three": "cache" }).problems, [
    "a/one fails",
    "a/two passes: take it out of pending.json (cache)",
    "a/three is listed in pending.json but was not run",
  ]);
});

Deno.test("parseSuiteOutput() reads the lines of all suites", () => {
  const output = [
    "ok   health/live (3 ms)",
    "FAIL health/ready",
    "     why: it should",
    "   - status: expected 200, got 400",
    "ok   stream/order  0.12 s",
    "FAIL stream/cancel  (stream.json)",
    "ok   match_dims",
    "note: something",
    "ok    cli.forms  (4 checks, 2.71 s)",
    "FAIL  log.settings  (0 of 1 checks failed, 2.1 s)",
    "checks: 4 passed, 1 failed",
    "4 passed, 3 failed",
    "",
  ].join("\n");
  const result = parseSuiteOutput(output);
  assert.deepEqual([...result.cases], [
    ["health/live", true],
    ["health/ready", false],
    ["stream/order", true],
    ["stream/cancel", false],
    ["match_dims", true],
    ["cli.forms", true],
    ["log.settings", false],
  ]);
  assert.deepEqual(result.details.get("health/ready"), [
    "     why: it should",
    "   - status: expected 200, got 400",
  ]);
});

Deno.test("parseSuiteOutput() refuses a count that does not fit", () => {
  assert.throws(() => parseSuiteOutput("ok   a\n2 passed, 0 failed\n"), /says: 2 passed/);
  assert.throws(() => parseSuiteOutput("ok   a\n"), /says: no count/);
});
