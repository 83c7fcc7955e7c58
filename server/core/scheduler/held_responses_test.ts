import assert from "node:assert/strict";
import type { ExecuteResponse } from "../../../backends/backend.ts";
import { HeldResponses, MAX_HELD_RESPONSES } from "./held_responses.ts";

function setUp(signal?: AbortSignal) {
  const released: number[] = [];
  const delivered: string[] = [];
  const held = new HeldResponses("7", signal);
  const response = (value: number, byteSize = 0): ExecuteResponse => ({
    outputs: [{ name: "Y", datatype: "UINT8", shape: [byteSize], data: new Uint8Array(byteSize) }],
    parameters: { value: BigInt(value) },
    release: () => released.push(value),
  });
  const deliver = (each: ExecuteResponse | undefined, isFinal: boolean): undefined => {
    const value = each === undefined
      ? "-"
      : "error" in each
      ? each.error.code
      : String(each.parameters?.value);
    delivered.push(`${value}${isFinal ? "!" : ""}`);
  };
  return { held, response, released, delivered, deliver };
}

async function isSettled(promise: Promise<void>): Promise<boolean> {
  let settled = false;
  promise.then(() => settled = true);
  for (let turn = 0; turn < 5; turn++) await Promise.resolve();
  return settled;
}

Deno.test("HeldResponses asks to wait until they leave in order", async () => {
  const { held, response, delivered, deliver } = setUp();
  const wait = held.add(response(1), false)!;
  held.add(response(2), true);
  assert.equal(await isSettled(wait), false);
  held.release(deliver);
  assert.equal(await isSettled(wait), true);
  assert.deepEqual(delivered, ["1", "2!"]);
});

Deno.test("HeldResponses lets a model go on that must not wait", async () => {
  const { held, response } = setUp();
  const wait = held.add(response(1), false)!;
  held.stopWaiting();
  assert.equal(await isSettled(wait), true);
  assert.equal(held.add(response(2), false), undefined);
});

Deno.test("HeldResponses replaces what is too much by one error, and keeps the end", () => {
  const { held, response, released, delivered, deliver } = setUp();
  held.stopWaiting();
  for (let index = 0; index < MAX_HELD_RESPONSES + 10; index++) held.add(response(index), false);
  held.add(response(-1), true);
  held.release(deliver);
  assert.equal(delivered.length, MAX_HELD_RESPONSES + 2);
  assert.deepEqual(delivered.slice(-2), ["UNAVAILABLE", "-!"]);
  assert.equal(released.length, 11);
  const large = setUp();
  for (let index = 0; index < 3; index++) {
    void large.held.add(large.response(index, 30e6), index === 2);
  }
  large.held.release(large.deliver);
  assert.deepEqual(large.delivered, ["0", "1", "UNAVAILABLE!"]);
});

Deno.test("HeldResponses drops everything but the end when the client has gone", async () => {
  const controller = new AbortController();
  const { held, response, released, delivered, deliver } = setUp(controller.signal);
  const wait = held.add(response(1), false)!;
  controller.abort();
  assert.equal(await isSettled(wait), true);
  held.add(response(2), false);
  held.add(response(3), true);
  held.release(deliver);
  assert.deepEqual(delivered, ["-!"]);
  assert.deepEqual(released, [1, 2, 3]);
  const late = setUp(controller.signal);
  assert.equal(late.held.add(late.response(1), false), undefined);
});
