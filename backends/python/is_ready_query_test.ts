import assert from "node:assert/strict";
import { IsReadyQuery } from "./is_ready_query.ts";
import type { Frame } from "../process/frame.ts";

function setUp(timeoutMs?: number): {
  query: IsReadyQuery;
  sent: number[];
  answer(id: number, json: Frame["json"]): void;
} {
  const sent: number[] = [];
  const query = new IsReadyQuery({ send: (_kind, id) => void sent.push(id) }, "m_0_0", timeoutMs);
  const answer = (id: number, json: Frame["json"]) =>
    query.answered({ kind: 19, id, json, payload: new Uint8Array() });
  return { query, sent, answer };
}

Deno.test("IsReadyQuery shares one answer among queries at the same time", async () => {
  const { query, sent, answer } = setUp();
  const both = Promise.all([query.ask(), query.ask()]);
  answer(1, { v: true });
  assert.deepEqual(await both, [{ isReady: true }, { isReady: true }]);
  const next = query.ask();
  answer(2, { v: false });
  assert.deepEqual(await next, {
    isReady: false,
    reason: "Model 'm_0_0' is not ready (user-defined check failed).",
  });
  assert.deepEqual(sent, [1, 2]);
});

Deno.test("IsReadyQuery passes the model's error on, and the end of its process", async () => {
  const { query, answer } = setUp();
  const first = query.ask();
  answer(1, { error: "ValueError: v" });
  assert.deepEqual(await first, { isReady: false, reason: "ValueError: v" });
  const second = query.ask();
  query.close("gone");
  assert.deepEqual(await second, { isReady: false, reason: "gone" });
});

Deno.test("IsReadyQuery does not ask again while a question is on its way that was given up", async () => {
  const { query, sent, answer } = setUp(0);
  assert.deepEqual(await query.ask(), {
    isReady: false,
    reason: "Timed out waiting for user-defined is_ready() response",
  });
  const second = query.ask();
  answer(1, { v: true });
  assert.deepEqual(await second, { isReady: true });
  assert.deepEqual(sent, [1]);
});
