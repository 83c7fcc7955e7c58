import assert from "node:assert/strict";
import { findSlotTable, parseVersion } from "./slot_table.ts";

Deno.test("parseVersion() reads both forms of version numbers", () => {
  const texts = [8601, 9300, 100000, 101600, 110100].map((number) => parseVersion(number).text);
  assert.deepEqual(texts, ["8.6.1", "9.3.0", "10.0.0", "10.16.0", "11.1.0"]);
});

Deno.test("findSlotTable() knows 8.6, 9, 10 and 11, and nothing else", () => {
  const names = [8601, 9300, 100000, 101600, 110100]
    .map((number) => findSlotTable(parseVersion(number))?.name);
  assert.deepEqual(names, ["8.6", "9", "10", "10", "11"]);
  for (const number of [7203, 8001, 8503, 120000]) {
    assert.equal(findSlotTable(parseVersion(number)), undefined);
  }
});

Deno.test("every slot of a class is another one, behind the two destructors", () => {
  for (const number of [8601, 100000, 110100]) {
    const { runtime, engine, context } = findSlotTable(parseVersion(number))!;
    for (const slots of [runtime, engine, context]) {
      const numbers: number[] = Object.values(slots);
      assert.equal(new Set(numbers).size, numbers.length);
      assert.ok(Math.min(...numbers) >= 2);
    }
  }
});
