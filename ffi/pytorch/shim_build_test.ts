import assert from "node:assert/strict";
import { join } from "node:path";
import { buildShim } from "./shim_build.ts";

/** A folder with a libtorch as far as the build looks at it, and a compiler that is a script. */
async function withCompiler(
  script: string,
  run: (
    folders: { torch: Parameters<typeof buildShim>[0]; cache: string; seen: string },
  ) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "nereid_shim_" });
  const compiler = join(folder, "compiler");
  const seen = join(folder, "seen");
  await Deno.writeTextFile(compiler, `#!/bin/sh\necho "$@" >> ${seen}\n${script}\n`);
  await Deno.chmod(compiler, 0o755);
  const before = Deno.env.get("CXX");
  Deno.env.set("CXX", compiler);
  const stamp = "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 13\n";
  const torch = { libraries: folder, headers: join(folder, "include"), stamp };
  try {
    await run({ torch, cache: join(folder, "cache"), seen });
  } finally {
    if (before === undefined) Deno.env.delete("CXX");
    else Deno.env.set("CXX", before);
    await Deno.remove(folder, { recursive: true });
  }
}

function namesIn(folder: string): string[] {
  return [...Deno.readDirSync(folder)].map(({ name }) => name);
}

/** Writes the file behind `-o`. */
const WRITES = `while [ "$1" != "-o" ]; do shift; done; echo shim > "$2"`;

Deno.test("buildShim() compiles once for a version, and finds the file afterwards", async () => {
  await withCompiler(WRITES, async ({ torch, cache, seen }) => {
    const path = await buildShim(torch, cache);
    assert.equal(await Deno.readTextFile(path), "shim\n");
    assert.equal(await buildShim(torch, cache), path);
    const calls = (await Deno.readTextFile(seen)).trim().split("\n");
    assert.equal(calls.length, 1);
    assert.match(calls[0]!, /^-std=c\+\+20 -D_GLIBCXX_USE_CXX11_ABI=1 .*-ltorch -ltorch_cpu -lc10/);
    const other = { ...torch, stamp: torch.stamp.replace("MINOR 13", "MINOR 5") };
    assert.notEqual(await buildShim(other, cache), path);
    assert.match((await Deno.readTextFile(seen)).split("\n")[1]!, /^-std=c\+\+17 /);
    assert.equal(namesIn(cache).length, 2, "nothing else stays");
  });
});

Deno.test("buildShim() uses the strings that the library was compiled with", async () => {
  await withCompiler(WRITES, async ({ torch, cache, seen }) => {
    await Deno.writeTextFile(join(torch.libraries, "libc10.so"), "_ZN3c105ErrorC1ESs");
    await buildShim(torch, cache);
    assert.match(await Deno.readTextFile(seen), /-D_GLIBCXX_USE_CXX11_ABI=0 /);
  });
});

Deno.test("buildShim() lets two builds at once end with one file", async () => {
  await withCompiler(WRITES, async ({ torch, cache }) => {
    const built = await Promise.all([1, 2, 3].map(() => buildShim(torch, cache)));
    assert.equal(new Set(built).size, 1);
    assert.deepEqual(namesIn(cache).map((name) => join(cache, name)), [built[0]]);
  });
});

Deno.test("buildShim() tells the compiler's words, and leaves nothing behind", async () => {
  const script = "echo 'shim.cc: In function:' >&2; echo 'x.h:3: error: no such thing' >&2; exit 2";
  await withCompiler(script, async ({ torch, cache }) => {
    await assert.rejects(
      buildShim(torch, cache),
      /Cannot build the shim for libtorch in '.*': '.*compiler' ended with 2: x\.h:3: error: no such thing/,
    );
    assert.deepEqual(namesIn(cache), []);
  });
});

Deno.test("buildShim() tells that there is no compiler", async () => {
  await withCompiler("", async ({ torch, cache }) => {
    Deno.env.set("CXX", "/nowhere/g++");
    await assert.rejects(
      buildShim(torch, cache),
      /no compiler '\/nowhere\/g\+\+'; 'apt-get install g\+\+'/,
    );
  });
});

Deno.test("buildShim() tells where it cannot write", async () => {
  await withCompiler(WRITES, async ({ torch, cache }) => {
    await Deno.writeTextFile(cache, "a file");
    await assert.rejects(
      buildShim(torch, cache),
      /folder '.*cache' cannot be written .*--backend-config=pytorch,cache=FOLDER names another/,
    );
  });
});

Deno.test({
  name: "buildShim() tells the permission that it needs",
  permissions: { run: false, read: true, write: true, env: true },
  async fn() {
    const folder = await Deno.makeTempDir({ prefix: "nereid_shim_" });
    const torch = { libraries: folder, headers: folder, stamp: "" };
    await assert.rejects(buildShim(torch, folder), /may not be run: --allow-run=/);
    await Deno.remove(folder, { recursive: true });
  },
});
