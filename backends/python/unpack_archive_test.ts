import assert from "node:assert/strict";
import { unpackArchive } from "./unpack_archive.ts";

interface Entry {
  readonly name: string;
  readonly type?: string;
  readonly target?: string;
  readonly text?: string;
  readonly mode?: number;
}

const encoder = new TextEncoder();

function header({ name, type = "0", target = "", mode = 0o644 }: Entry, byteSize: number) {
  const bytes = new Uint8Array(512);
  const write = (text: string, at: number) => bytes.set(encoder.encode(text), at);
  write(name.slice(0, 100), 0);
  write(`${mode.toString(8).padStart(7, "0")}\0`, 100);
  write(`${byteSize.toString(8).padStart(11, "0")}\0`, 124);
  write("        ", 148);
  write(type, 156);
  write(target, 157);
  write("ustar\x0000", 257);
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return bytes;
}

async function archiveOf(entries: readonly Entry[]): Promise<string> {
  const parts = entries.flatMap((entry) => {
    const data = encoder.encode(entry.text ?? "");
    return [header(entry, data.length), data, new Uint8Array((512 - data.length % 512) % 512)];
  });
  const tar = new Blob([...parts, new Uint8Array(1024)]).stream();
  const path = await Deno.makeTempFile({ suffix: ".tar.gz" });
  await Deno.writeFile(path, tar.pipeThrough(new CompressionStream("gzip")));
  return path;
}

async function unpack(entries: readonly Entry[], check: (folder: string) => Promise<void>) {
  const folder = await Deno.makeTempDir();
  const archive = await archiveOf(entries);
  try {
    await unpackArchive(archive, folder);
    await check(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
    await Deno.remove(archive);
  }
}

const LONG = `${"long/".repeat(30)}name.txt`;

Deno.test("unpackArchive() writes files, folders and links", async () => {
  await unpack([
    { name: "./bin/", type: "5" },
    { name: "./bin/activate", text: "a script", mode: 0o755 },
    { name: "bin/python3", text: "x".repeat(2000) },
    { name: "bin/python", type: "2", target: "python3" },
    { name: "lib/copy", type: "1", target: "bin/activate" },
    { name: "", type: "L", text: `${LONG}\0` },
    { name: "cut", text: "named by GNU" },
    { name: "pax", type: "x", text: "20 path=deep/er.txt\n" },
    { name: "cut", text: "named by PAX" },
  ], async (folder) => {
    assert.equal(await Deno.readTextFile(`${folder}/bin/activate`), "a script");
    assert.equal(((await Deno.stat(`${folder}/bin/activate`)).mode ?? 0) & 0o777, 0o755);
    assert.equal((await Deno.readTextFile(`${folder}/bin/python`)).length, 2000);
    assert.equal(await Deno.readTextFile(`${folder}/lib/copy`), "a script");
    assert.equal(await Deno.readTextFile(`${folder}/${LONG}`), "named by GNU");
    assert.equal(await Deno.readTextFile(`${folder}/deep/er.txt`), "named by PAX");
  });
});

const REFUSED: readonly [string, readonly Entry[], RegExp][] = [
  ["a name that goes up", [{ name: "a/../../b" }], /Path contains '\.\.'/],
  ["an absolute name", [{ name: "/etc/evil" }], /Path is absolute/],
  [
    "a way through a link",
    [{ name: "out", type: "2", target: "/tmp" }, { name: "out/evil" }],
    /symbolic link/,
  ],
  ["a file over a link", [{ name: "o", type: "2", target: "/tmp/x" }, { name: "o" }], /symbolic/],
  [
    "a hard link through a link",
    [{ name: "o", type: "2", target: "/etc/passwd" }, { name: "p", type: "1", target: "o" }],
    /symbolic/,
  ],
  ["a hard link to elsewhere", [{ name: "p", type: "1", target: "/etc/passwd" }], /absolute/],
  ["a device", [{ name: "null", type: "3" }], /no file, folder or link/],
  [
    "a name of a million parts",
    [{ name: "", type: "L", text: "a/".repeat(500_000) }, { name: "cut" }],
    /more than 4096 characters/,
  ],
];

for (const [what, entries, message] of REFUSED) {
  Deno.test(`unpackArchive() refuses ${what}`, async () => {
    await assert.rejects(unpack(entries, () => Promise.resolve()), { message });
  });
}

Deno.test("unpackArchive() refuses what is no archive, or cut short", async () => {
  const path = await Deno.makeTempFile();
  const folder = await Deno.makeTempDir();
  for (const text of ["no archive", "\x1f", ""]) {
    await Deno.writeTextFile(path, text);
    await assert.rejects(unpackArchive(path, folder), /no \.tar\.gz archive/);
  }
  const archive = await archiveOf([{ name: "a", text: "x".repeat(100_000) }]);
  const bytes = await Deno.readFile(archive);
  await Deno.writeFile(path, bytes.subarray(0, bytes.length / 2));
  await assert.rejects(unpackArchive(path, folder));
  await Promise.all([path, archive, folder].map((each) => Deno.remove(each, { recursive: true })));
});

Deno.test("unpackArchive() refuses what unpacks to far more than it is", async () => {
  const folder = await Deno.makeTempDir();
  const archive = await Deno.makeTempFile();
  const zeros = new Uint8Array(1024 ** 2);
  let count = 0;
  const endless = new ReadableStream<Uint8Array<ArrayBuffer>>({
    pull(controller) {
      controller.enqueue(count === 0 ? header({ name: "a" }, 8 * 1024 ** 3 - 1) : zeros);
      if (++count > 70) controller.close();
    },
  });
  await Deno.writeFile(archive, endless.pipeThrough(new CompressionStream("gzip")));
  await assert.rejects(unpackArchive(archive, folder), { message: /more than 67108864 bytes/ });
  await Promise.all([archive, folder].map((each) => Deno.remove(each, { recursive: true })));
});
