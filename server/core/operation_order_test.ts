import assert from "node:assert/strict";
import { OperationOrder } from "./operation_order.ts";

Deno.test("OperationOrder runs operations that share a name in order, others side by side", async () => {
  const order = new OperationOrder();
  const events: string[] = [];
  const gates = new Map<string, () => void>();
  const start = (label: string, names: readonly string[]) =>
    order.run(names, async () => {
      events.push(`${label}+`);
      await new Promise<void>((resolve) => gates.set(label, resolve));
      events.push(`${label}-`);
    });
  const settle = () =>
    new Promise<void>((resolve) => queueMicrotask(() => queueMicrotask(resolve)));
  const ends = [start("1", ["a"]), start("2", ["a", "b"]), start("3", ["b"]), start("4", ["c"])];
  const end = async (label: string) => {
    for (let round = 0; round < 5; round++) await settle();
    gates.get(label)!();
    for (let round = 0; round < 5; round++) await settle();
  };
  await end("1");
  assert.deepEqual(events, ["1+", "4+", "1-", "2+"]);
  await end("2");
  await end("3");
  await end("4");
  await Promise.all(ends);
  assert.deepEqual(events.slice(4), ["2-", "3+", "3-", "4-"]);
  assert.deepEqual(order.names(), []);
});

Deno.test("OperationOrder goes on after an operation that failed", async () => {
  const order = new OperationOrder();
  const failing = order.run(["a"], () => Promise.reject(new Error("no")));
  const next = order.run(["a"], () => Promise.resolve("yes"));
  await assert.rejects(failing, { message: "no" });
  assert.equal(await next, "yes");
  assert.deepEqual(order.names(), []);
});
