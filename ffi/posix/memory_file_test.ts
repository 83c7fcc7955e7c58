import assert from "node:assert/strict";
import { createMemoryFile, hasMemoryFiles, openMemoryFile } from "./memory_file.ts";

const ignore = !hasMemoryFiles();

Deno.test({
  name: "openMemoryFile() maps what createMemoryFile() made, by process and file descriptor",
  ignore,
  fn() {
    using own = createMemoryFile(100_000);
    using other = openMemoryFile(Deno.pid, own.fd);
    own.bytes[99_999] = 7;
    assert.equal(other.bytes.length, 100_000);
    assert.equal(other.bytes[99_999], 7);
    other.bytes[0] = 3;
    assert.equal(own.bytes[0], 3);
  },
});

Deno.test({
  name: "openMemoryFile() refuses what its owner could cut",
  ignore,
  fn() {
    const path = Deno.makeTempFileSync();
    using file = Deno.openSync(path, { read: true, write: true });
    file.truncateSync(4096);
    const fds = [...Deno.readDirSync("/proc/self/fd")].map(({ name }) => Number(name));
    const fd = fds.find((each) => {
      try {
        return Deno.readLinkSync(`/proc/self/fd/${each}`) === path;
      } catch {
        return false;
      }
    })!;
    assert.throws(() => openMemoryFile(Deno.pid, fd), RangeError);
    Deno.removeSync(path);
    assert.throws(() => openMemoryFile(Deno.pid, 1_000_000), /open of .* failed/);
  },
});

Deno.test({
  name: "a memory file that was disposed leaves empty views",
  ignore,
  fn() {
    const own = createMemoryFile(64);
    const view = own.bytes.subarray(1);
    own[Symbol.dispose]();
    own[Symbol.dispose]();
    assert.equal(view.length, 0);
  },
});
