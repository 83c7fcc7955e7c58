import { deepEqual, equal } from "node:assert/strict";
import { BlockCache } from "./block_cache.ts";
import { MemoryBudget } from "./memory_budget.ts";

Deno.test("BlockCache gives the smallest block that fits and does not waste", () => {
  const cache = new BlockCache<{ byteSize: number; name?: string }>(1000);
  for (const byteSize of [100, 300, 150, 250]) deepEqual(cache.keep({ byteSize }), []);
  equal(cache.byteSize, 800);
  deepEqual(cache.take(140), { byteSize: 150 });
  deepEqual(cache.take(140), { byteSize: 250 });
  equal(cache.take(140), undefined);
  equal(cache.take(40), undefined);
  deepEqual(cache.take(50), { byteSize: 100 });
  deepEqual(cache.clear(), [{ byteSize: 300 }]);
  equal(cache.byteSize, 0);
});

Deno.test("BlockCache lets the oldest go when it is full, and takes nothing that is larger than itself", () => {
  const cache = new BlockCache<{ byteSize: number }>(500);
  deepEqual(cache.keep({ byteSize: 501 }), [{ byteSize: 501 }]);
  cache.keep({ byteSize: 200 });
  cache.keep({ byteSize: 250 });
  deepEqual(cache.keep({ byteSize: 260 }), [{ byteSize: 200 }, { byteSize: 250 }]);
  equal(cache.byteSize, 260);
  deepEqual(new BlockCache<{ byteSize: number }>(0).keep({ byteSize: 1 }), [{ byteSize: 1 }]);
});

Deno.test("MemoryBudget gives out what there is and no more", () => {
  const budget = new MemoryBudget(100);
  equal(budget.take(60), true);
  equal(budget.take(41), false);
  equal(budget.usedBytes, 60);
  equal(budget.take(40), true);
  budget.give(60);
  equal(budget.usedBytes, 40);
  equal(new MemoryBudget(0).take(1), false);
});
