import assert from "node:assert/strict";
import { MemoryApi } from "./memory_api.ts";
import { sharedMemoryCalls } from "./shared_memory_calls.ts";

const unknown = { $typeName: "" } as const;

function setUp() {
  const api = new MemoryApi();
  return { api, calls: sharedMemoryCalls(api) };
}

function message<Call extends (request: never) => unknown>(
  _call: Call,
  fields: Omit<Parameters<Call>[0], "$typeName" | "$unknown">,
): Parameters<Call>[0] {
  return { ...unknown, ...fields } as unknown as Parameters<Call>[0];
}

Deno.test("systemSharedMemory calls register, tell of and forget regions", async () => {
  const { api, calls } = setUp();
  const register = calls.systemSharedMemoryRegister;
  for (const name of ["a", "__proto__"]) {
    const fields = { name, key: "/k", offset: 2n ** 63n, byteSize: 64n };
    assert.deepEqual(await register(message(register, fields)), {});
  }
  const { systemSharedMemoryStatus: status } = calls;
  const { regions } = status(message(status, { name: "" }));
  assert.deepEqual(Object.keys(regions), ["a", "__proto__"]);
  assert.deepEqual(regions["__proto__"], {
    name: "__proto__",
    key: "/k",
    offset: 2n ** 63n,
    byteSize: 64n,
  });
  const { systemSharedMemoryUnregister: unregister } = calls;
  unregister(message(unregister, { name: "a" }));
  assert.deepEqual(api.unregistered, [["system", "a"]]);
});

Deno.test("cudaSharedMemory calls register, tell of and forget regions", async () => {
  const { api, calls } = setUp();
  const register = calls.cudaSharedMemoryRegister;
  const rawHandle = new Uint8Array(64).fill(7);
  await register(message(register, { name: "g", rawHandle, deviceId: 1n, byteSize: 64n }));
  assert.deepEqual(api.rawHandles, [rawHandle]);
  const { cudaSharedMemoryStatus: status } = calls;
  const { regions } = status(message(status, { name: "g" }));
  assert.deepEqual({ ...regions }, { g: { name: "g", deviceId: 1n, byteSize: 64n } });
  const { cudaSharedMemoryUnregister: unregister } = calls;
  unregister(message(unregister, { name: "" }));
  assert.deepEqual(api.unregistered, [["cuda", ""]]);
});
