import assert from "node:assert/strict";
import type { ExecuteRequest } from "./backend.ts";
import { executeRequest } from "./execute_request_fixture.ts";
import { watchAborts } from "./abort_watch.ts";

function request(signal: AbortSignal | undefined): ExecuteRequest {
  return executeRequest({ inputs: [], outputs: ["Y"], signal });
}

Deno.test("watchAborts() calls back once, with the last request of the batch", () => {
  const [first, second] = [new AbortController(), new AbortController()];
  let count = 0;
  const watch = watchAborts([request(first.signal), request(second.signal)], () => count++);
  first.abort();
  assert.equal(count, 0);
  assert.equal(watch.areAll(), false);
  second.abort();
  assert.equal(count, 1);
  assert.equal(watch.areAll(), true);
  assert.equal(watch.end(), true);
});

Deno.test("watchAborts() does not call back after its end, nor with a request without signal", () => {
  const controller = new AbortController();
  let count = 0;
  const ended = watchAborts([request(controller.signal)], () => count++);
  assert.equal(ended.end(), false);
  const mixed = watchAborts([request(controller.signal), request(undefined)], () => count++);
  controller.abort();
  assert.equal(count, 0);
  assert.equal(mixed.areAll(), false);
});

Deno.test("watchAborts() only answers questions when it is passive", () => {
  const controller = new AbortController();
  let count = 0;
  const watch = watchAborts([request(controller.signal)], () => count++, { passive: true });
  controller.abort();
  assert.equal(count, 0);
  assert.equal(watch.areAll(), true);
  assert.equal(watch.end(), false);
});
