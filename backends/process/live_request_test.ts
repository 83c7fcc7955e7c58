import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { LiveRequest } from "./live_request.ts";

function openRequest(options: { isSlow?: boolean } = {}) {
  const sent: (string | undefined)[] = [];
  const told: string[] = [];
  let held: PromiseWithResolvers<void> | undefined;
  const controller = new AbortController();
  const request = executeRequest({
    inputs: [],
    outputs: ["A"],
    signal: controller.signal,
    send(response, isFinal) {
      const parameters = response !== undefined && "outputs" in response ? response.parameters : {};
      sent.push(isFinal ? "final" : String(parameters?.n));
      if (options.isSlow !== true || isFinal) return undefined;
      held = Promise.withResolvers<void>();
      return held.promise;
    },
  });
  const live = new LiveRequest(request, 7, {
    credit: (number, count) => told.push(`credit ${number} ${count}`),
    cancelled: (number) => told.push(`cancelled ${number}`),
    closed: (number) => told.push(`closed ${number}`),
  });
  return { live, sent, told, controller, take: () => held?.resolve() };
}

const response = (n: number) => ({ outputs: [], parameters: { n: BigInt(n) } });
const settle = () => new Promise((resolve) => setTimeout(resolve));

Deno.test("receive() hands responses on, and credits them in steps", () => {
  const { live, sent, told } = openRequest();
  for (let n = 0; n < 40; n++) live.receive(response(n), false);
  live.receive(undefined, true);
  assert.equal(sent.length, 41);
  assert.deepEqual(told, ["credit 7 16", "credit 7 16", "closed 7"]);
  assert.equal(live.isOver, true);
});

Deno.test("receive() waits for a slow client before it credits or hands on more", async () => {
  const { live, sent, told, take } = openRequest({ isSlow: true });
  for (let n = 0; n < 20; n++) live.receive(response(n), false);
  assert.deepEqual(sent, ["0"]);
  for (let n = 1; n < 20; n++) {
    take();
    await settle();
    assert.equal(sent.length, n + 1);
  }
  assert.deepEqual(told, ["credit 7 16"]);
  live.receive(undefined, true);
  assert.equal(sent.length, 20);
  take();
  await settle();
  assert.equal(sent.at(-1), "final");
});

Deno.test("receive() refuses more responses than may be on their way", () => {
  const { live } = openRequest({ isSlow: true });
  assert.throws(() => {
    for (let n = 0; n < 1000; n++) live.receive(response(n), false);
  }, RangeError);
});

Deno.test("receive() takes the end of a request also when too many responses wait", () => {
  const { live, told } = openRequest({ isSlow: true });
  assert.throws(() => {
    for (let n = 0; n < 1000; n++) live.receive(response(n), false);
  }, RangeError);
  live.receive({ error: new ServerError("INTERNAL", "The process has ended") }, true);
  assert.equal(live.isOver, true);
  assert.deepEqual(told, ["closed 7"]);
});

Deno.test("what comes after the end is given back", () => {
  const { live, sent } = openRequest();
  live.close();
  let releaseCount = 0;
  live.receive({ outputs: [], release: () => void releaseCount++ }, false);
  assert.equal(releaseCount, 1);
  assert.deepEqual(sent, []);
});

Deno.test("an abort is told while the request lives, and not afterwards", () => {
  const { live, told, controller } = openRequest();
  controller.abort();
  assert.deepEqual(told, ["cancelled 7"]);
  const later = openRequest();
  later.live.close();
  later.controller.abort();
  assert.deepEqual(later.told, ["closed 7"]);
  live.close();
});
