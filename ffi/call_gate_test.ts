import assert from "node:assert/strict";
import { createCallGate } from "./call_gate.ts";

Deno.test("createCallGate() lets callers in up to its limit and the rest in order", async () => {
  const gate = createCallGate(2);
  assert.equal(gate.enter(), undefined);
  assert.equal(gate.enter(), undefined);
  const order: string[] = [];
  const third = gate.enter()?.then(() => order.push("third"));
  const fourth = gate.enter()?.then(() => order.push("fourth"));
  assert.equal(gate.inFlight, 2);
  gate.leave();
  await third;
  assert.deepEqual(order, ["third"]);
  gate.leave();
  await fourth;
  assert.deepEqual(order, ["third", "fourth"]);
  gate.leave();
  gate.leave();
  assert.equal(gate.inFlight, 0);
});

Deno.test("createCallGate() refuses a limit that is no positive integer", () => {
  assert.throws(() => createCallGate(0), RangeError);
  assert.throws(() => createCallGate(1.5), RangeError);
});
