import assert from "node:assert/strict";
import { AnswerOrder, type AnswerPlace } from "./answer_order.ts";

Deno.test("AnswerOrder lets answers go at once when nothing runs", () => {
  const order = new AnswerOrder();
  let count = 0;
  order.addReady(() => count++);
  assert.deepEqual([count, order.heldCount], [1, 0]);
});

Deno.test("AnswerOrder keeps the order of arrival, whatever is ready first", async () => {
  let seed = 1;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % below;
  };
  for (let round = 0; round < 300; round++) {
    const order = new AnswerOrder();
    const seen: number[] = [];
    const running: { number: number; place: AnswerPlace }[] = [];
    const size = 1 + random(30);
    for (let number = 0; number < size; number++) {
      if (random(2) === 0) running.push({ number, place: order.addRunning() });
      else order.addReady(() => seen.push(number));
      // The running ones end in their order, one or more in a step of the event loop.
      for (let count = random(3); count > 0 && running.length > 0 && random(3) === 0; count--) {
        const first = running.shift()!;
        order.end(first.place);
        seen.push(first.number);
      }
      if (random(3) === 0) await Promise.resolve();
    }
    for (const { number, place } of running) {
      order.end(place);
      seen.push(number);
    }
    await Promise.resolve();
    assert.deepEqual(seen, Array.from({ length: size }, (_, number) => number));
    assert.equal(order.heldCount, 0);
  }
});
