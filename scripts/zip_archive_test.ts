import assert from "node:assert/strict";
import { deflateRawSync } from "node:zlib";
import { ZipArchive } from "./zip_archive.ts";

interface Entry {
  readonly name: string;
  readonly content: Uint8Array;
  readonly method?: number;
  /** Wrong sizes, to see them found. */
  readonly byteSize?: number;
}

function u16(value: number): number[] {
  return [value & 255, value >> 8];
}

function u32(value: number): number[] {
  return [...u16(value & 0xffff), ...u16(value >>> 16)];
}

/** A zip archive, with extra fields before the content as some programs write them. */
function zip(entries: readonly Entry[], comment = ""): Uint8Array {
  const bytes: number[] = [];
  const directory: number[] = [];
  const encoder = new TextEncoder();
  for (const { name, content, method = 8, byteSize = content.length } of entries) {
    const packed = method === 8 ? deflateRawSync(content) : content;
    const sizes = [...u32(0), ...u32(packed.length), ...u32(byteSize)];
    const title = encoder.encode(name);
    const offset = bytes.length;
    bytes.push(...u32(0x04034b50), ...u16(20), ...u16(0), ...u16(method), ...u32(0), ...sizes);
    bytes.push(...u16(title.length), ...u16(4), ...title, 1, 2, 3, 4, ...packed);
    directory.push(...u32(0x02014b50), ...u16(20), ...u16(20), ...u16(0), ...u16(method));
    directory.push(...u32(0), ...sizes, ...u16(title.length), ...u16(2), ...u16(1));
    directory.push(...u16(0), ...u16(0), ...u32(0), ...u32(offset), ...title, 9, 9, 7);
  }
  const start = bytes.length;
  bytes.push(...directory, ...u32(0x06054b50), ...u16(0), ...u16(0), ...u16(entries.length));
  bytes.push(...u16(entries.length), ...u32(directory.length), ...u32(start));
  bytes.push(...u16(comment.length), ...encoder.encode(comment));
  return Uint8Array.from(bytes);
}

const TEXT = new TextEncoder().encode("text ".repeat(100));

Deno.test("ZipArchive reads stored and deflated files", () => {
  const archive = new ZipArchive(
    zip([{ name: "a/deflated.txt", content: TEXT }, {
      name: "störed",
      content: TEXT,
      method: 0,
    }, { name: "empty", content: new Uint8Array() }], "a comment"),
  );
  assert.deepEqual(archive.names(), ["a/deflated.txt", "störed", "empty"]);
  assert.deepEqual(archive.read("a/deflated.txt"), Uint8Array.from(TEXT));
  assert.deepEqual(archive.read("störed"), Uint8Array.from(TEXT));
  assert.equal(archive.read("empty").length, 0);
});

Deno.test("ZipArchive refuses what is no archive, and files that are not in it", () => {
  assert.throws(() => new ZipArchive(new Uint8Array()), /These 0 bytes are no zip archive/);
  assert.throws(() => new ZipArchive(TEXT), /These 500 bytes are no zip archive/);
  const archive = new ZipArchive(zip([{ name: "a", content: TEXT }]));
  assert.throws(() => archive.read("b"), /The archive has no file b/);
});

Deno.test("ZipArchive finds damage", () => {
  const whole = zip([{ name: "a", content: TEXT }]);
  const cut = Uint8Array.from([...whole.subarray(0, 10), ...whole.subarray(20)]);
  assert.throws(() => new ZipArchive(cut), /directory of the archive is damaged at entry 0 of 1/);
  const short = new ZipArchive(zip([{ name: "a", content: TEXT, byteSize: 600 }]));
  assert.throws(() => short.read("a"), /File a has 500 bytes, expected 600/);
  // A file that is larger than it says is not unpacked any further.
  const long = new ZipArchive(zip([{ name: "a", content: TEXT, byteSize: 400 }]));
  assert.throws(() => long.read("a"));
  const unknown = new ZipArchive(zip([{ name: "a", content: TEXT, method: 12 }]));
  assert.throws(() => unknown.read("a"), /packed by method 12, expected 0 or 8/);
});
