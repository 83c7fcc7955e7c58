import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { FakeClock } from "./fake_clock.ts";
import { type CachePartition, ResponseCache } from "./response_cache.ts";

function output(byteSize: number, fill = 1): Tensor {
  const data = new Uint8Array(byteSize).fill(fill);
  return { name: "OUT", datatype: "UINT8", shape: [1, byteSize], data };
}

function open(byteSize: number, maxEntryCount?: number) {
  const cache = new ResponseCache({
    byteSize,
    clock: new FakeClock(),
    ...(maxEntryCount === undefined ? {} : { maxEntryCount }),
  });
  return { cache, partition: cache.createPartition() };
}

/** What one entry takes from the budget. */
function costOf(byteSize: number, key: string): number {
  const { cache, partition } = open(1 << 30);
  partition.insert(key, [output(byteSize)]);
  return cache.byteSize;
}

Deno.test("ResponseCache.insert() keeps a copy of every output", () => {
  const { partition } = open(100_000);
  const outputs = [output(5, 7), { ...output(3, 9), name: "OTHER" }];
  assert.equal(partition.insert("k", outputs), "inserted");
  for (const { data } of outputs) data.fill(0);
  const kept = partition.lookup("k")!;
  assert.deepEqual(kept.map(({ name, shape, data }) => [name, shape, [...data]]), [
    ["OUT", [1, 5], [7, 7, 7, 7, 7]],
    ["OTHER", [1, 3], [9, 9, 9]],
  ]);
  assert.equal(kept[1]!.data.byteOffset % 16, 0);
  assert.equal(partition.lookup("k"), kept);
});

Deno.test("ResponseCache.insert() leaves an entry that is there", () => {
  const { cache, partition } = open(100_000);
  partition.insert("k", [output(1, 1)]);
  const { byteSize } = cache;
  assert.equal(partition.insert("k", [output(900, 2)]), "exists");
  assert.equal(partition.lookup("k")![0]!.data[0], 1);
  assert.equal(cache.byteSize, byteSize);
});

Deno.test("ResponseCache.insert() refuses what is larger than the whole cache, and evicts nothing for it", () => {
  const { cache, partition } = open(2000);
  partition.insert("small", [output(10)]);
  const cost = costOf(5000, "large");
  assert.throws(
    () => partition.insert("large", [output(5000)]),
    new ServerError(
      "INTERNAL",
      `Requested byte_size: ${cost} is greater than total cache size: 2000`,
    ),
  );
  assert.ok(partition.lookup("small"));
  assert.equal(cache.snapshot().evictionCount, 0);
});

Deno.test("ResponseCache counts keys, names, shapes and bookkeeping", () => {
  assert.ok(costOf(0, "") > 0);
  assert.equal(costOf(0, "x".repeat(64)) - costOf(0, ""), 64);
  assert.equal(costOf(1600, "k") - costOf(0, "k"), 1600);
  const { cache, partition } = open(100_000);
  partition.insert("k", [{ ...output(1), shape: Array.from({ length: 100 }, () => 1) }]);
  assert.ok(cache.byteSize >= costOf(1, "k") + 98 * 8);
});

Deno.test("ResponseCache evicts what was not used longest", () => {
  const cost = costOf(100, "a");
  const { cache, partition } = open(3 * cost);
  for (const key of ["a", "b", "c"]) partition.insert(key, [output(100)]);
  assert.ok(partition.lookup("a"));
  partition.insert("d", [output(100)]);
  assert.deepEqual(["a", "b", "c", "d"].map((key) => partition.lookup(key) !== undefined), [
    true,
    false,
    true,
    true,
  ]);
  const { entryCount, evictionCount, utilization } = cache.snapshot();
  assert.deepEqual([entryCount, evictionCount, utilization], [3, 1, 1]);
});

Deno.test("ResponseCache bounds the number of entries", () => {
  const { cache, partition } = open(1 << 30, 2);
  for (const key of ["a", "b", "c"]) partition.insert(key, []);
  assert.equal(partition.lookup("a"), undefined);
  assert.equal(cache.snapshot().entryCount, 2);
});

Deno.test("CachePartition.clear() drops the entries of one load only", () => {
  const { cache, partition } = open(100_000);
  const other = cache.createPartition();
  assert.notEqual(other.id, partition.id);
  partition.insert("a", [output(10)]);
  other.insert("b", [output(10)]);
  partition.insert("c", [output(10)]);
  partition.clear();
  assert.equal(cache.lookup("a"), undefined);
  assert.equal(cache.lookup("c"), undefined);
  assert.ok(cache.lookup("b"));
  assert.equal(cache.snapshot().evictionCount, 0);
  other.clear();
  assert.equal(cache.byteSize, 0);
});

Deno.test("ResponseCache refuses a budget that is no positive integer", () => {
  for (const byteSize of [0, -1, 1.5, NaN, 2 ** 60]) {
    assert.throws(() => open(byteSize), RangeError);
  }
});

/** The same cache, as simple as can be: a list, oldest first. */
class SimpleCache {
  readonly entries: { key: string; owner: CachePartition; cost: number }[] = [];
  constructor(readonly budget: number) {}

  get used(): number {
    return this.entries.reduce((sum, { cost }) => sum + cost, 0);
  }

  lookup(key: string): boolean {
    const index = this.entries.findIndex((entry) => entry.key === key);
    if (index < 0) return false;
    this.entries.push(...this.entries.splice(index, 1));
    return true;
  }

  insert(key: string, owner: CachePartition, cost: number): string {
    if (this.entries.some((entry) => entry.key === key)) return "exists";
    if (cost > this.budget) return "refused";
    while (this.used + cost > this.budget) this.entries.shift();
    this.entries.push({ key, owner, cost });
    return "inserted";
  }

  clear(owner: CachePartition): void {
    const others = this.entries.filter((entry) => entry.owner !== owner);
    this.entries.splice(0, this.entries.length, ...others);
  }
}

Deno.test("ResponseCache does what a simple list does, over random operations", () => {
  let seed = 12345;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % below;
  };
  for (let round = 0; round < 20; round++) {
    const budget = 2000 + random(20_000);
    const { cache, partition } = open(budget);
    const partitions = [partition, cache.createPartition(), cache.createPartition()];
    const simple = new SimpleCache(budget);
    for (let step = 0; step < 2000; step++) {
      const owner = partitions[random(3)]!;
      const key = `${owner.id}:${random(25)}`;
      const action = random(100);
      if (action < 50) {
        assert.equal(cache.lookup(key) !== undefined, simple.lookup(key));
      } else if (action < 99) {
        const byteSize = random(12) === 0 ? random(30_000) : random(2000);
        let result: string;
        try {
          result = cache.insert(key, owner, [output(byteSize)]);
        } catch {
          result = "refused";
        }
        assert.equal(result, simple.insert(key, owner, costOf(byteSize, key)));
      } else {
        owner.clear();
        simple.clear(owner);
      }
      assert.equal(cache.byteSize, simple.used);
      assert.ok(cache.byteSize <= budget);
      const { entryCount } = cache.snapshot();
      assert.equal(entryCount, simple.entries.length);
      assert.equal(partitions.reduce((sum, { keys }) => sum + keys.size, 0), entryCount);
    }
  }
});
