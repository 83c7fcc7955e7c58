import assert from "node:assert/strict";
import { Sequence } from "./sequence.ts";
import { SequenceSlots } from "./sequence_slots.ts";

Deno.test("SequenceSlots gives away the lowest free slot", () => {
  const slots = new SequenceSlots(3);
  const sequences = [1n, 2n, 3n].map((id) => new Sequence(id));
  for (const sequence of sequences) slots.take(sequence);
  assert.deepEqual(sequences.map(({ slot }) => slot), [0, 1, 2]);
  assert.equal(slots.lowestFree, Infinity);
  assert.throws(() => slots.take(new Sequence(4n)), TypeError);
  slots.release(sequences[2]!);
  slots.release(sequences[0]!);
  assert.equal(slots.lowestFree, 0);
  assert.deepEqual(slots.owners, [undefined, sequences[1]]);
  const next = new Sequence(5n);
  slots.take(next);
  assert.equal(next.slot, 0);
});

Deno.test("SequenceSlots.check() knows an owner whose time is over", () => {
  const slots = new SequenceSlots(1);
  const first = new Sequence(1n);
  slots.take(first);
  const stale = Object.assign(new Sequence(1n), { slot: 0, generation: first.generation });
  slots.release(first);
  slots.take(new Sequence(2n));
  assert.throws(() => slots.check(stale), /another owner/);
  assert.throws(() => slots.release(first), TypeError);
});
