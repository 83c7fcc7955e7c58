import assert from "node:assert/strict";
import { CallList, createCallRunner } from "./call_list.ts";
import { loadMachineCode } from "./machine_code.ts";
import { addressOf, addressOfPointer } from "./memory.ts";

const isServed = Deno.build.os === "linux" && ["x86_64", "aarch64"].includes(Deno.build.arch);

function libc() {
  const { symbols } = Deno.dlopen("libc.so.6", {
    labs: { type: "pointer" },
    gettid: { type: "pointer" },
    memcpy: { type: "pointer" },
  });
  return {
    labs: addressOfPointer(symbols.labs),
    gettid: addressOfPointer(symbols.gettid),
    memcpy: addressOfPointer(symbols.memcpy),
  };
}

Deno.test({
  name: "CallList runs its calls in order on one thread and keeps the results",
  ignore: !isServed,
  async fn() {
    const runner = createCallRunner(loadMachineCode());
    const { labs, gettid, memcpy } = libc();
    const list = new CallList();
    for (let index = 0; index < 40; index++) {
      list.add("gettid", gettid, { args: [], expect: "anything" });
    }
    list.add("labs", labs, { args: [BigInt.asUintN(64, -(2n ** 40n))], expect: "anything" });
    const source = new TextEncoder().encode("bytes");
    const target = new Uint8Array(new ArrayBuffer(5));
    list.add("memcpy", memcpy, {
      args: [addressOf(target), addressOf(source), 5n],
      expect: "anything",
    });
    list.keep(source);
    list.keep(target);
    assert.equal(await list.run(runner), undefined);
    const threads = new Set(Array.from({ length: 40 }, (_, index) => list.result(index)));
    assert.equal(threads.size, 1);
    assert.equal(list.result(40), 2n ** 40n);
    assert.equal(new TextDecoder().decode(target), "bytes");
  },
});

Deno.test({
  name: "CallList ends at the first call that gives something else, and tells which",
  ignore: !isServed,
  async fn() {
    const runner = createCallRunner(loadMachineCode());
    const { labs } = libc();
    const list = new CallList();
    list.add("good", labs, { args: [0n] });
    // Only the low byte counts for a bool.
    list.add("true", labs, { args: [0x101n], expect: "true" });
    list.add("bad", labs, { args: [7n] });
    list.add("never", labs, { args: [9n] });
    assert.deepEqual(await list.run(runner), { name: "bad", index: 2, result: 7n });
    assert.equal(list.result(3), 0n);
    list.clear();
    assert.equal(list.length, 0);
    assert.equal(await list.run(runner), undefined);
    assert.throws(() => list.add("x", labs, { args: [1n, 2n, 3n, 4n, 5n, 6n] }), RangeError);
  },
});
