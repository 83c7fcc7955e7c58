import assert from "node:assert/strict";
import { findMemoryQuota } from "./memory_quota.ts";

const GIB = 2 ** 30;

function findWith(total: number | undefined, files: Record<string, string>): Promise<number> {
  return findMemoryQuota({
    total() {
      if (total === undefined) throw new Deno.errors.NotCapable("sys");
      return total;
    },
    readText: (path) =>
      path in files ? Promise.resolve(files[path]!) : Promise.reject(new Deno.errors.NotFound()),
  });
}

Deno.test("findMemoryQuota() is half of the machine's memory, and never more than 16 GiB", async () => {
  assert.equal(await findWith(8 * GIB, {}), 4 * GIB);
  assert.equal(await findWith(512 * GIB, {}), 16 * GIB);
  assert.equal(await findWith(undefined, {}), 16 * GIB);
});

Deno.test("findMemoryQuota() obeys the limit of a container", async () => {
  const [second, first] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
  ];
  assert.equal(await findWith(8 * GIB, { [second]: "1073741824\n" }), GIB / 2);
  assert.equal(await findWith(8 * GIB, { [first]: "2147483648\n" }), GIB);
  assert.equal(await findWith(8 * GIB, { [second]: "max\n" }), 4 * GIB);
  assert.equal(await findWith(8 * GIB, { [first]: "9223372036854771712\n" }), 4 * GIB);
});
