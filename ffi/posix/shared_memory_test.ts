import assert from "node:assert/strict";
import { PosixError, SharedMemoryObject } from "./shared_memory.ts";

const isLinux = Deno.build.os === "linux";
const PAGE = 4096;

/** A shared memory object of this test, and its name. */
class TestObject implements Disposable {
  readonly key = `/nereid_unit_${crypto.randomUUID()}`;
  readonly file = `/dev/shm${this.key}`;

  constructor(readonly byteSize: number) {
    Deno.writeFileSync(this.file, new Uint8Array(byteSize).map((_, index) => index % 251));
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.file);
  }
}

Deno.test({
  name: "SharedMemoryObject maps any part by reference",
  ignore: !isLinux,
  fn() {
    using file = new TestObject(3 * 65536);
    using object = SharedMemoryObject.open(file.key);
    assert.equal(object.byteSize, file.byteSize);
    for (const offset of [0, 1, 4096, 65535, 65536, 65537, 131072]) {
      using mapping = object.map(offset, 300);
      assert.equal(mapping.bytes.length, 300);
      assert.equal(mapping.bytes[7], (offset + 7) % 251);
      assert.ok(mapping.holds(mapping.bytes.subarray(3)));
      assert.ok(!mapping.holds(new Uint8Array(3)));
      mapping.bytes[0] = 99;
      assert.equal(Deno.readFileSync(file.file)[offset], 99);
      assert.equal(mapping.isWhole, true);
    }
  },
});

Deno.test({
  name: "SharedMemoryMapping leaves empty views behind",
  ignore: !isLinux,
  fn() {
    using file = new TestObject(PAGE);
    using object = SharedMemoryObject.open(file.key);
    const mapping = object.map(0, PAGE);
    const { bytes } = mapping;
    const view = bytes.subarray(10, 20);
    mapping[Symbol.dispose]();
    mapping[Symbol.dispose]();
    assert.deepEqual([bytes.length, view.length, view[0]], [0, 0, undefined]);
    assert.ok(!mapping.holds(view));
    assert.equal(Deno.readTextFileSync("/proc/self/maps").includes(file.key), false);
  },
});

Deno.test({
  name: "SharedMemoryObject reads and writes up to the end of the object",
  ignore: !isLinux,
  fn() {
    using file = new TestObject(100);
    using object = SharedMemoryObject.open(file.key);
    const bytes = new Uint8Array(20);
    assert.equal(object.read(bytes, 90), 10);
    assert.equal(bytes[9], 99);
    assert.equal(bytes[10], 0);
    assert.equal(object.read(bytes, 200), 0);
    assert.equal(object.write(Uint8Array.of(1, 2, 3), 50), 3);
    assert.deepEqual([...Deno.readFileSync(file.file).subarray(50, 53)], [1, 2, 3]);
  },
});

Deno.test({
  name: "SharedMemoryObject.reserve() gives a hole its memory",
  ignore: !isLinux,
  async fn() {
    using file = new TestObject(0);
    Deno.truncateSync(file.file, 100 * PAGE);
    using object = SharedMemoryObject.open(file.key);
    assert.equal(Deno.statSync(file.file).blocks, 0);
    await object.reserve(10 * PAGE, 50 * PAGE);
    assert.equal(Deno.statSync(file.file).blocks! * 512, 50 * PAGE);
    assert.equal(object.byteSize, 100 * PAGE);
    // More than any machine has.
    await assert.rejects(object.reserve(0, 2 ** 50), PosixError);
  },
});

Deno.test({
  name: "SharedMemoryObject tells the error of the system, and keeps no file open",
  ignore: !isLinux,
  fn() {
    assert.throws(() => SharedMemoryObject.open("/nereid_unit_none"), { errno: 2 });
    using file = new TestObject(PAGE);
    const object = SharedMemoryObject.open(file.key);
    object[Symbol.dispose]();
    object[Symbol.dispose]();
    assert.throws(() => object.byteSize, TypeError);
    const open = [...Deno.readDirSync("/proc/self/fd")].map(({ name }) => {
      try {
        return Deno.readLinkSync(`/proc/self/fd/${name}`);
      } catch {
        return "";
      }
    });
    assert.ok(!open.some((target) => target.includes(file.key)));
  },
});

Deno.test({
  name: "SharedMemoryMapping of an object that is cut reads zeros, and says so",
  ignore: !isLinux || Deno.build.arch !== "x86_64",
  fn() {
    using file = new TestObject(8 * PAGE);
    using other = new TestObject(8 * PAGE);
    using object = SharedMemoryObject.open(file.key);
    using otherObject = SharedMemoryObject.open(other.key);
    using otherMapping = otherObject.map(0, 8 * PAGE);
    using mapping = object.map(PAGE, 6 * PAGE + 10);
    Deno.truncateSync(file.file, 2 * PAGE);
    assert.equal(mapping.bytes[0], PAGE % 251);
    assert.equal(mapping.isWhole, true);
    assert.equal(mapping.bytes[PAGE], 0);
    assert.equal(mapping.isWhole, false);
    mapping.bytes.fill(7);
    assert.equal(mapping.bytes[6 * PAGE + 9], 7);
    assert.equal(otherMapping.isWhole, true);
    assert.equal(otherMapping.bytes[5], 5);
    assert.equal(Deno.readFileSync(file.file)[PAGE], 7, "what was not cut is still shared");
  },
});
