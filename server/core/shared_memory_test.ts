import assert from "node:assert/strict";
import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { type SharedMemoryRules, SharedMemoryTable } from "./shared_memory.ts";
import { inferRequest } from "./engine_fixture.ts";
import { FakeMemory } from "./shared_memory_fixture.ts";

function setUp(rules: Partial<SharedMemoryRules> = {}) {
  const memory = new FakeMemory();
  const table = new SharedMemoryTable(
    { isAllowed: true, allowedKeyPrefixes: [], reservedKeyPrefixes: [], ...rules },
    memory,
  );
  const register = (name: string, change: { key?: string; offset?: bigint; size?: bigint } = {}) =>
    table.registerSystem({
      kind: "system",
      name,
      key: change.key ?? "/k",
      offset: change.offset ?? 0n,
      byteSize: change.size ?? 64n,
    });
  return { memory, table, register };
}

const HANDLE = new Uint8Array(64);

function cuda(name: string, change: { deviceId?: bigint; byteSize?: bigint } = {}) {
  return { kind: "cuda", name, deviceId: 0n, byteSize: 64n, ...change } as const;
}

function sharedRequest(region: string): InferRequest {
  const request = inferRequest("m");
  const sharedMemory = { region, offset: 0, byteSize: 4 };
  return { ...request, inputs: request.inputs.map((input) => ({ ...input, sharedMemory })) };
}

function refuses(call: Promise<unknown> | (() => unknown), code: string, message: string) {
  const expected = { code, message };
  if (typeof call === "function") return assert.throws(call, expected);
  return assert.rejects(call, expected);
}

Deno.test("SharedMemoryTable lists regions by kind and name", async () => {
  const { table, register } = setUp();
  await register("a", { offset: 4096n });
  await register("b");
  await table.registerCuda(cuda("g"), HANDLE);
  assert.deepEqual(table.status("system", "").map(({ name }) => name), ["a", "b"]);
  assert.deepEqual(table.status("system", "a"), [
    { kind: "system", name: "a", key: "/k", offset: 4096n, byteSize: 64n },
  ]);
  assert.deepEqual(table.status("cuda", "g"), [cuda("g")]);
  const not = "The region named 'g' is registered as CUDA shared memory, not system shared memory";
  refuses(() => table.status("system", "g"), "NOT_FOUND", not);
  const nor = "The region named 'a' is registered as system shared memory, not CUDA shared memory";
  refuses(() => table.status("cuda", "a"), "NOT_FOUND", nor);
  const none = "Unable to find cuda shared memory region: 'x'";
  refuses(() => table.status("cuda", "x"), "NOT_FOUND", none);
});

Deno.test("SharedMemoryTable refuses a name that is taken, by either kind", async () => {
  const { table, memory, register } = setUp();
  const first = register("a");
  const taken = "shared memory region 'a' already in manager";
  // While the first is still being opened, too.
  await refuses(register("a"), "ALREADY_EXISTS", taken);
  await first;
  await refuses(table.registerCuda(cuda("a"), HANDLE), "ALREADY_EXISTS", taken);
  assert.equal(memory.openCount, 1);
  table.unregister("cuda", "a");
  assert.equal(table.status("system", "").length, 1, "the other kind is left alone");
  table.unregister("system", "a");
  assert.equal(memory.openCount, 0);
  await register("a");
});

Deno.test("SharedMemoryTable answers UNSUPPORTED when clients may not use it", async () => {
  const { table, register } = setUp({ isAllowed: false });
  const text = "Client shared memory is disabled. " +
    "Start the server with '--allow-client-shm=true' to enable.";
  await refuses(register("a"), "UNSUPPORTED", text);
  await refuses(table.registerCuda(cuda("a"), HANDLE), "UNSUPPORTED", text);
  refuses(() => table.unregister("system", ""), "UNSUPPORTED", text);
  assert.deepEqual(table.status("system", ""), []);
});

Deno.test("SharedMemoryTable refuses keys that are no file name, or the server's own", async () => {
  const { register, memory } = setUp({ reservedKeyPrefixes: ["secret_"] });
  const place = "cannot register shared memory region 'a'";
  for (
    const key of ["", "/", "///", "/a/b", "/../etc/passwd", "/..", ".", "/a\0b", "k".repeat(256)]
  ) {
    await refuses(
      register("a", { key }),
      "INVALID_ARG",
      `${place} - invalid shm key '${key}'`,
    );
  }
  const own = "triton_python_backend_shm_region_";
  for (const key of [`${own}1`, `/${own}x`, `//${own}`]) {
    await refuses(
      register("a", { key }),
      "INVALID_ARG",
      `${place} with key '${key}' as the key contains the reserved prefix '${own}'`,
    );
  }
  await refuses(
    register("a", { key: "/secret_1" }),
    "INVALID_ARG",
    `${place} with key '/secret_1' as the key contains a reserved prefix`,
  );
  assert.equal(memory.openCount, 0);
  await register("a", { key: "//my_key" });
});

Deno.test("SharedMemoryTable takes only keys of the prefixes it was given", async () => {
  const { register } = setUp({
    allowedKeyPrefixes: ["shop_", "lab_"],
    reservedKeyPrefixes: ["shop_own"],
  });
  await register("a", { key: "/lab_1" });
  await register("b", { key: "shop_1" });
  const place = "cannot register shared memory region 'c' with key";
  const text = "as this server takes only keys of --client-shm-key-prefix";
  for (const key of ["/other", "/_shop_1", "/SHOP_1"]) {
    await refuses(register("c", { key }), "INVALID_ARG", `${place} '${key}' ${text}`);
  }
  await assert.rejects(register("c", { key: "/shop_own_1" }), /contains a reserved prefix$/);
});

Deno.test("SharedMemoryTable refuses sizes that are zero or do not fit a number", async () => {
  const { table, register } = setUp();
  const text = "failed to register shared memory region 'a': invalid args";
  await refuses(register("a", { size: 0n }), "INVALID_ARG", text);
  await refuses(register("a", { offset: 2n ** 63n }), "INVALID_ARG", text);
  await refuses(register("a", { offset: 2n ** 64n - 1n, size: 2n }), "INVALID_ARG", text);
  await refuses(register("a", { size: 2n ** 53n }), "INVALID_ARG", text);
  await assert.rejects(table.registerCuda(cuda("a", { byteSize: 0n }), HANDLE), /byte size 0/);
  await assert.rejects(table.registerCuda(cuda("a", { deviceId: -1n }), HANDLE), /no device -1/);
  await assert.rejects(table.registerCuda(cuda("a"), HANDLE.subarray(1)), /has 63 bytes/);
  await assert.rejects(register("x".repeat(1025)), /1025 characters/);
});

Deno.test("SharedMemoryTable puts the name around what cannot be opened", async () => {
  const { memory, table, register } = setUp();
  memory.failure = new ServerError("NOT_FOUND", "no such object");
  await refuses(register("a"), "INTERNAL", "Unable to open shared memory region: '/k'");
  memory.failure = new ServerError("INVALID_ARG", "invalid args");
  const text = "failed to register shared memory region 'a': invalid args";
  await refuses(register("a"), "INVALID_ARG", text);
  memory.failure = new ServerError("UNSUPPORTED", "GPUs not supported");
  await refuses(
    table.registerCuda(cuda("a"), HANDLE),
    "INVALID_ARG",
    "failed to register CUDA shared memory region: 'a', GPUs not supported",
  );
  memory.failure = undefined;
  await register("a");
});

Deno.test("SharedMemoryTable drops a region that is unregistered while it is opened", async () => {
  const { memory, table, register } = setUp();
  const registering = register("a");
  table.unregister("system", "");
  await registering;
  assert.deepEqual(table.status("system", ""), []);
  assert.equal(memory.openCount, 0);
});

Deno.test("SharedMemoryTable has a bound, which counts regions that are being opened or closed", async () => {
  const { memory, table, register } = setUp();
  memory.maxRegions = 3;
  const text = /there are 3 regions, the most allowed$/;
  const all = [register("a"), register("b"), register("c")];
  await assert.rejects(register("d"), text);
  await Promise.all(all);
  await assert.rejects(register("d"), text);
  await assert.rejects(table.registerCuda(cuda("d"), HANDLE), text);
  const used = table.bind(sharedRequest("a"), { clientMemory: () => undefined })!;
  table.unregister("system", "");
  await register("a");
  await register("b");
  await assert.rejects(register("c"), text);
  used.release();
  await register("c");
  assert.equal(memory.openCount, 3);
});

Deno.test("SharedMemoryTable frees everything when it is closed", async () => {
  const { memory, table, register } = setUp();
  await register("a");
  await table.registerCuda(cuda("g"), HANDLE);
  table.close();
  assert.equal(memory.openCount, 0);
  await refuses(register("b"), "UNAVAILABLE", "Server exiting");
});
