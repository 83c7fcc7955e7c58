import assert from "node:assert/strict";
import { NumberedTable } from "./numbered_table.ts";

function add<T>(table: NumberedTable<T>, value: T): number {
  const number = table.nextNumber();
  table.set(number, value);
  return number;
}

Deno.test("NumberedTable gives numbers that count upwards and finds values by them", () => {
  const table = new NumberedTable<string>();
  assert.deepEqual([add(table, "a"), add(table, "b")], [1, 2]);
  assert.deepEqual([table.get(1), table.get(2), table.get(3), table.get(0)], [
    "a",
    "b",
    undefined,
    undefined,
  ]);
  assert.ok(table.delete(1));
  assert.ok(!table.delete(1) && !table.delete(0));
  assert.equal(add(table, "c"), 3);
  assert.deepEqual([table.size, table.values()], [2, ["b", "c"]]);
});

Deno.test("NumberedTable steps over numbers whose place is taken, and grows", () => {
  const table = new NumberedTable<number>();
  const first = add(table, 0);
  for (let count = 1; count < 1000; count++) {
    const number = add(table, count);
    assert.equal(table.get(number), count);
    if (count % 3 !== 0) table.delete(number);
  }
  assert.equal(table.get(first), 0);
  assert.equal(table.size, 334);
  assert.deepEqual(table.values(), Array.from({ length: 334 }, (_, index) => index * 3));
});

Deno.test("NumberedTable knows no number that only shares a place with one that it has", () => {
  const table = new NumberedTable<string>();
  add(table, "a");
  for (const number of [1 + 64, 1 + 2 ** 31, 2 ** 32 + 1]) {
    assert.equal(table.get(number), undefined);
    assert.ok(!table.delete(number));
  }
});

Deno.test("NumberedTable begins again at 1 behind the largest number, and keeps the order", () => {
  const table = new NumberedTable<string>(0xffff_fffd);
  assert.deepEqual(["a", "b", "c"].map((value) => add(table, value)), [
    0xffff_fffe,
    0xffff_ffff,
    1,
  ]);
  assert.deepEqual(table.values(), ["a", "b", "c"]);
});

Deno.test("NumberedTable forgets all with clear()", () => {
  const table = new NumberedTable<string>();
  const number = add(table, "a");
  table.clear();
  assert.deepEqual([table.size, table.get(number), table.values()], [0, undefined, []]);
  assert.equal(add(table, "b"), 2);
});
