import assert from "node:assert/strict";
import { LoadSlots } from "./load_slots.ts";

function jobs(slots: LoadSlots) {
  const running = new Set<string>();
  const gates = new Map<string, () => void>();
  const start = (name: string) =>
    slots.run(async () => {
      running.add(name);
      await new Promise<void>((resolve) => gates.set(name, resolve));
      running.delete(name);
    });
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
  const end = async (name: string) => {
    gates.get(name)!();
    await settle();
  };
  return { start, end, settle, running: () => [...running].join("") };
}

Deno.test("LoadSlots.run() runs so many jobs at a time, in order", async () => {
  const { start, end, settle, running } = jobs(new LoadSlots(2));
  for (const name of "abcd") void start(name);
  await settle();
  assert.equal(running(), "ab");
  await end("b");
  assert.equal(running(), "ac");
  await end("a");
  await end("c");
  assert.equal(running(), "d");
  await end("d");
});

Deno.test("LoadSlots.lend() gives a slot more, and takes it back", async () => {
  const slots = new LoadSlots(1);
  const { start, end, settle, running } = jobs(slots);
  for (const name of "abcd") void start(name);
  await settle();
  const lent = slots.lend();
  await settle();
  assert.equal(running(), "ab");
  lent[Symbol.dispose]();
  await end("a");
  assert.equal(running(), "b", "one more ran than there are slots");
  await end("b");
  assert.equal(running(), "c");
  await end("c");
  await end("d");
  void start("e");
  void start("f");
  await settle();
  assert.equal(running(), "e");
  await end("e");
  await end("f");
});
