import assert from "node:assert/strict";
import { relative } from "node:path";
import { libraryFileFault } from "./library_file.ts";

const ignore = Deno.build.os !== "linux";

/** A library of one part of 4096 bytes, as a file of `size` bytes. */
function elf(size: number, machine = Deno.build.arch === "aarch64" ? 183 : 62): Uint8Array {
  const bytes = new Uint8Array(4096);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0x464c_457f, true);
  view.setUint8(4, 2);
  view.setUint16(18, machine, true);
  view.setBigUint64(32, 64n, true);
  view.setUint16(56, 1, true);
  view.setUint32(64, 1, true);
  view.setBigUint64(64 + 32, 4096n, true);
  return bytes.subarray(0, size);
}

function faultOf(content: Uint8Array | string): string | undefined {
  const path = Deno.makeTempFileSync();
  try {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    Deno.writeFileSync(path, bytes);
    return libraryFileFault(path);
  } finally {
    Deno.removeSync(path);
  }
}

Deno.test({
  name: "libraryFileFault() lets a whole library pass, and what only the loader knows",
  ignore,
  fn() {
    assert.equal(faultOf(elf(4096)), undefined);
    assert.equal(libraryFileFault("libc.so.6"), undefined);
    assert.equal(libraryFileFault("/nowhere/libexample.so"), undefined);
  },
});

Deno.test({
  name: "libraryFileFault() finds files that are cut off",
  ignore,
  fn() {
    assert.equal(faultOf(elf(4095)), `the file is cut off: it has 4095 bytes of 4096`);
    assert.equal(faultOf(elf(100)), `the file is cut off: it has 100 bytes`);
  },
});

Deno.test({
  name: "libraryFileFault() looks at paths from the current folder as well",
  ignore,
  fn() {
    const folder = Deno.makeTempDirSync({ dir: "." });
    try {
      Deno.writeFileSync(`${folder}/libcut.so`, elf(4000));
      const path = relative(Deno.cwd(), `${Deno.realPathSync(folder)}/libcut.so`);
      assert.match(libraryFileFault(path) ?? "", /cut off/);
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  },
});

Deno.test({
  name: "libraryFileFault() tells what is no library of this machine",
  ignore,
  fn() {
    assert.equal(faultOf("GROUP ( libc.so.6 )"), "it is no shared library");
    assert.equal(faultOf(""), "it is no shared library");
    const other = Deno.build.arch === "aarch64" ? 62 : 183;
    assert.match(faultOf(elf(4096, other))!, /^it is a library for \w+, this machine is /);
    assert.equal(faultOf(elf(4096, 999))!.split(",")[0], "it is a library for machine 999 of ELF");
    assert.equal(libraryFileFault("/tmp"), "it is no regular file");
    assert.equal(libraryFileFault("/dev/null"), "it is no regular file");
  },
});
