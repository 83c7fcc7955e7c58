import assert from "node:assert/strict";

const SCRIPT = `
import { BusGuard } from "${new URL("../../ffi/posix/bus_guard.ts", import.meta.url)}";
import { SharedMemoryObject } from "${new URL(
  "../../ffi/posix/shared_memory.ts",
  import.meta.url,
)}";
const [key, how] = Deno.args;
const outer = how === "nested" ? BusGuard.install() : undefined;
const object = SharedMemoryObject.open(key);
using guarded = object.map(0, 8192);
const libc = Deno.dlopen("libc.so.6", {
  shm_open: { parameters: ["buffer", "i32", "u32"], result: "i32" },
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  memchr: { parameters: ["buffer", "i32", "usize"], result: "pointer", nonblocking: true },
});
const fd = libc.symbols.shm_open(new TextEncoder().encode(key + "\\0"), 2, 0);
const pointer = libc.symbols.mmap(null, 8192n, 3, 1, fd, 0n);
const plain = new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(pointer, 8192));
const watched = outer?.watch(BigInt(Deno.UnsafePointer.value(pointer)), 8192);
Deno.truncateSync("/dev/shm" + key, 0);
// On other threads, as a model reads it.
const reads = Array.from({ length: 8 }, () => libc.symbols.memchr(guarded.bytes, 5, 8192n));
await Promise.all(reads);
console.log("guarded", guarded.isWhole);
if (how !== "guarded") console.log("plain", plain[5000], watched?.faultCount);
`;

async function run(how: string): Promise<{ signal: string | null; text: string }> {
  const key = `/nereid_guard_${crypto.randomUUID()}`;
  const script = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeFile(`/dev/shm${key}`, new Uint8Array(8192));
  await Deno.writeTextFile(script, SCRIPT);
  try {
    const { signal, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", script, key, how],
    }).output();
    const decoder = new TextDecoder();
    return { signal, text: decoder.decode(stdout) + decoder.decode(stderr) };
  } finally {
    await Deno.remove(script);
    await Deno.remove(`/dev/shm${key}`);
  }
}

const ignore = Deno.build.os !== "linux" || Deno.build.arch !== "x86_64";

Deno.test({
  name: "BusGuard keeps the process alive when threads read what was cut",
  ignore,
  async fn() {
    assert.deepEqual(await run("guarded"), { signal: null, text: "guarded false\n" });
  },
});

Deno.test({
  name: "BusGuard leaves faults in other memory to the system",
  ignore,
  async fn() {
    assert.deepEqual(await run("plain"), { signal: "SIGBUS", text: "guarded false\n" });
  },
});

Deno.test({
  name: "BusGuard hands faults that are not its own to the handler that was there before",
  ignore,
  async fn() {
    assert.deepEqual(await run("nested"), { signal: null, text: "guarded false\nplain 0 1\n" });
  },
});
